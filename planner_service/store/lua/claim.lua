-- idle_ms, name, lease_ms, workers, whether it takes every job, number of jobs, these jobs, and job and token of each
-- claim that it knows of.
-- {'claim', job, attempt, replica, iteration, digest, batch, tries, token, workers}, or {'wait', ms or false}.
local idle_ms, name, lease_ms, workers, takes_all = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local own, held = {}, {}
local first_held = 7 + tonumber(ARGV[6])
for at = 7, first_held - 1 do own[ARGV[at]] = true end
for at = first_held, #ARGV, 2 do held[ARGV[at] .. ' ' .. ARGV[at + 1]] = true end

local lease_ends_ms = false

-- The nearest entry of a job that is free, as a member of the set of those that wait; notes when the first lease ends.
local function nearest(job)
  local best = nil
  local function look(consumer, id, idle_ms)
    if name_of(consumer) == name and held[job .. ' ' .. id] then return end
    -- One's own that one does not know of is as another's: the answer that brings it may be under way.
    local left_ms = lease_of(consumer) - idle_ms
    if left_ms > 0 then
      lease_ends_ms = lease_ends_ms and math.min(lease_ends_ms, left_ms) or left_ms
    else
      local member = member_now(job, id)
      if not best or member < best then best = member end
    end
  end
  for _, holder in ipairs(holders(job)) do
    if holder[1] ~= WAITING then
      for _, entry in ipairs(redis.call('XPENDING', queue_key(job), GROUP, '-', '+', ALL, holder[1])) do
        look(holder[1], entry[1], entry[3])
      end
    end
  end
  local waits = redis.call('ZRANGE', waiting_key(job), 0, 0)[1]
  if waits and (not best or waits < best) then return waits end
  return best
end

-- Puts all jobs of a job's client behind those of others, this one last: many jobs are not many turns.
local function had_its_turn(job)
  local client = redis.call('HGET', job_key(job), 'owner')
  local function go_last(other) redis.call('ZADD', 'dip:1:turns', redis.call('INCR', 'dip:1:counter'), other) end
  for _, other in ipairs(redis.call('ZRANGE', 'dip:1:turns', 0, -1)) do
    if other ~= job and redis.call('HGET', job_key(other), 'owner') == client then go_last(other) end
  end
  go_last(job)
end

-- Claims an entry, unless it is of no batch that waits: then it is taken off. So is what a job left behind whose hash is
-- gone: an operator deleted it, or Redis did under another policy than noeviction.
local function take(job, id)
  local queue, attempt = queue_key(job), redis.call('HGET', job_key(job), 'attempt')
  if not attempt then
    forget_job(job)
    return nil
  end
  local entry = redis.call('XRANGE', queue, id, id)[1]
  if not entry then
    dequeue(job, {id})
    return nil
  end
  local replica = entry[2][2]
  local key, iteration = replica_key(job, replica), padded(string.match(id, '%-(%d+)$'))
  local stands = redis.call('HMGET', key, iteration .. ':queue', iteration .. ':digest', iteration .. ':batch')
  if stands[1] ~= id then
    dequeue(job, {id})
    return nil
  end
  local before = redis.call('XPENDING', queue, GROUP, id, id, 1)[1]
  local tries = before and before[4] or 0
  give(job, id, consumer_of(name, lease_ms), tries + 1)
  redis.call('ZREM', waiting_key(job), member_of(id, false), member_of(id, true))
  had_its_turn(job)
  return {'claim', job, attempt, replica, iteration, stands[2], stands[3], tries, id}
end

local claim = nil
for _, job in ipairs(redis.call('ZRANGE', 'dip:1:turns', 0, -1)) do
  if takes_all == '1' or own[job] then
    while not claim and redis.call('EXISTS', queue_key(job)) == 1 do
      local member = nearest(job)
      if not member then break end
      claim = take(job, id_of(member))
    end
    if claim then break end
  end
end
local living = workers_with(idle_ms, name, lease_ms, workers, takes_all)
if not claim then return {'wait', lease_ends_ms} end
claim[#claim + 1] = living
return claim
