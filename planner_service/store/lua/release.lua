-- name, and job and token of each claim that it gives back.
local name = ARGV[1]
for at = 2, #ARGV, 2 do
  local job, id = ARGV[at], ARGV[at + 1]
  local entry = owned(job, id, name)
  if entry then
    give(job, id, WAITING, entry[4] - 1)
    redis.call('ZADD', waiting_key(job), 0, member_now(job, id))
    local consumer = entry[2]
    if #redis.call('XPENDING', queue_key(job), GROUP, '-', '+', 1, consumer) == 0 then
      redis.call('XGROUP', 'DELCONSUMER', queue_key(job), GROUP, consumer)
    end
  end
end
redis.call('HDEL', 'dip:1:planners', name)
tell_queue()
