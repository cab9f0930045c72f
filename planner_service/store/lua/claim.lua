-- idle_ms, name, lease_ms, workers, whether it takes every job, number of jobs, these jobs, and job and token of each
-- claim that it knows of.
-- {'claim', job, attempt, replica, iteration, digest, batch, tries, token, workers}, or {'wait', ms or false}.
local idle_ms, name, lease_ms, workers, takes_all = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local own, held = {}, {}
local first_held = 7 + tonumber(ARGV[6])
for at = 7, first_held - 1 do own[ARGV[at]] = true end
for at = first_held, #ARGV, 2 do held[ARGV[at] .. ' ' .. ARGV[at + 1]] = true end

local lease_ends_ms = false

-- Replica by entry, and whether the entry is of an iteration that its replica is running by now, or has run.
local function replicas_of(job)
  local by_id, running = {}, {}
  for _, entry in ipairs(redis.call('XRANGE', queue_key(job), '-', '+')) do
    local replica = entry[2][2]
    by_id[entry[1]] = replica
    running[replica] = running[replica] or redis.call('HGET', replica_key(job, replica), 'running') or ''
  end
  return function(id, iteration) return by_id[id] and iteration <= running[by_id[id]] end
end

-- The entries of a job that are free, and when the first lease ends of those that are not.
local function free_entries(job)
  local free, is_late = {}, replicas_of(job)
  for _, entry in ipairs(pending(job)) do
    local id, consumer, idle = entry[1], entry[2], entry[3]
    local is_free, left_ms = consumer == WAITING, nil
    -- One's own that one does not know of is as another's: the answer that brings it may be under way.
    if not is_free and not (name_of(consumer) == name and held[job .. ' ' .. id]) then
      left_ms = lease_of(consumer) - idle
      is_free = left_ms <= 0
    end
    if is_free then
      local iteration = padded(string.match(id, '%-(%d+)$'))
      local turn = (is_late(id, iteration) and '1' or '0') .. iteration
      free[#free + 1] = {id = id, iteration = iteration, turn = turn, deliveries = entry[4]}
    elseif left_ms and (not lease_ends_ms or left_ms < lease_ends_ms) then
      lease_ends_ms = left_ms
    end
  end
  return free
end

-- Where the entry is whose turn it is: the lowest iteration, but for those that would come too late. Entries come in the
-- order in which they were added.
local function nearest(free)
  local best = 1
  for at = 2, #free do
    if free[at].turn < free[best].turn then best = at end
  end
  return best
end

local function take(job, entry)
  local replica = redis.call('XRANGE', queue_key(job), entry.id, entry.id)[1][2][2]
  local key, iteration = replica_key(job, replica), entry.iteration
  local stands = redis.call('HMGET', key, iteration .. ':queue', iteration .. ':digest', iteration .. ':batch')
  if stands[1] ~= entry.id then
    dequeue(job, {entry.id}) -- it went without its entry
    return nil
  end
  give(job, entry.id, consumer_of(name, lease_ms), entry.deliveries + 1)
  redis.call('ZADD', 'dip:turns', redis.call('INCR', 'dip:counter'), job)
  return {'claim', job, redis.call('HGET', job_key(job), 'attempt'), replica, iteration, stands[2], stands[3],
    entry.deliveries - 1, entry.id}
end

local claim = nil
for _, job in ipairs(redis.call('ZRANGE', 'dip:turns', 0, -1)) do
  if redis.call('EXISTS', queue_key(job)) == 0 then
    drop_queue(job)
  elseif not claim and (takes_all == '1' or own[job]) then
    local free = free_entries(job)
    while not claim and #free > 0 do claim = take(job, table.remove(free, nearest(free))) end
  end
end
local living = workers_with(idle_ms, name, lease_ms, workers, takes_all)
if not claim then return {'wait', lease_ends_ms} end
claim[#claim + 1] = living
return claim
