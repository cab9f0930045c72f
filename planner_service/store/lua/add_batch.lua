-- idle_ms, kept iterations, kept bytes, job, attempt, replica, iteration, digest, batch, limit, limit of bytes or '',
-- reason if it is late, and of a claimant: name, lease_ms, workers, whether it takes every job.
-- {'added', or 'stands' where one was there before, digest that stands, settled, token and workers if it is claimed},
-- {'late'} where it is settled so now, {'full'}, {'heavy', bytes that wait}, or a refusal.
local idle_ms, kept_iterations, kept_bytes = ARGV[1], ARGV[2], ARGV[3]
local job, attempt, replica, iteration, digest, batch = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local limit, limit_bytes, late_reason = tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12]
local name, lease_ms, workers, takes_all = ARGV[13], ARGV[14], ARGV[15], ARGV[16]

local refused = refusal(job, attempt, replica, iteration, true)
if refused then return refused end
local key, queue = replica_key(job, replica), queue_key(job)
local stands = redis.call('HMGET', key, iteration .. ':digest', iteration .. ':ranks', 'reported')
if stands[1] then return {'stands', stands[1], stands[2] and 1 or 0} end
if redis.call('ZCARD', key .. ':unsettled') >= limit then return {'full'} end

if stands[3] and iteration <= stands[3] then
  redis.call('HSET', key, iteration .. ':digest', digest)
  settle_iteration(job, replica, iteration, unplanned(late_reason))
  drop_oldest(job, replica, kept_iterations, kept_bytes)
  touch(idle_ms, job, replica)
  tell_replica(job, attempt, replica)
  return {'late'}
end

-- A job without a queue has nothing that waits: whatever the count says, it begins anew.
local has_queue = redis.call('EXISTS', queue) == 1
local taken = has_queue and tonumber(redis.call('HGET', job_key(job), 'queued_bytes') or '0') or 0
if limit_bytes and taken > 0 and taken + #batch > limit_bytes then return {'heavy', taken} end
redis.call('HSET', job_key(job), 'queued_bytes', taken + #batch)
if not has_queue then
  redis.call('XGROUP', 'CREATE', queue, GROUP, '0', 'MKSTREAM')
else
  holders(job) -- makes sure of the group
end
if not redis.call('ZSCORE', 'dip:1:turns', job) then
  redis.call('ZADD', 'dip:1:turns', redis.call('INCR', 'dip:1:counter'), job)
end
local count = redis.call('HINCRBY', job_key(job), 'counter', 1)
local time = redis.call('TIME')
local now_ms = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local entry_id = string.format('%.0f', count) .. '-' .. iteration
local id = redis.call('XADD', queue, entry_id, 'replica', replica, 'came_ms', now_ms)
redis.call('HSET', key, iteration .. ':digest', digest, iteration .. ':batch', batch, iteration .. ':queue', id)
redis.call('ZADD', key .. ':unsettled', 0, iteration)
if not name then
  redis.call('ZADD', waiting_key(job), 0, member_of(id, is_running(job, replica, iteration)))
  touch(idle_ms, job, replica)
  tell_queue()
  return {'added', digest, 0}
end
give(job, id, consumer_of(name, lease_ms), 1)
touch(idle_ms, job, replica)
tell_queue()
return {'added', digest, 0, id, workers_with(idle_ms, name, lease_ms, workers, takes_all)}
