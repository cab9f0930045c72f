-- Begins every script: the names of keys, and the steps that scripts share. docs/redis.md describes the keys.
--
-- Job ids come percent-encoded, so that they hold no colon. An iteration is text of 19 digits and never a number: numbers
-- of Lua and scores of sorted sets would round it, and text of one length sorts as the numbers do.
--
-- The number behind 'dip:' is that of the layout: raise it, here and wherever it stands, with a change of what is in Redis
-- that scripts of the version before would trip over.

local GROUP, WAITING = 'planners', 'waiting' -- WAITING is the consumer of what was given back
local ZERO = string.rep('0', 19)
local NEWEST_KEPT = 2 -- iterations with an outcome that stay whatever they take
local REPORTS_PART = 4 -- reports may take one part in so many of what outcomes may
local RECENT_REPORTED = 32 -- iterations of which a job knows whether ranks ran the fallback
local ALL = 1000000 -- more entries than a queue holds

local function job_key(job) return 'dip:1:job:' .. job end
local function queue_key(job) return 'dip:1:job:' .. job .. ':queue' end
local function waiting_key(job) return 'dip:1:job:' .. job .. ':waiting' end
local function fell_back_key(job) return 'dip:1:job:' .. job .. ':fell_back' end
local function replicas_key(job) return 'dip:1:job:' .. job .. ':replicas' end
local function replica_key(job, replica) return 'dip:1:job:' .. job .. ':' .. replica end

local function padded(digits) return string.rep('0', 19 - #digits) .. digits end

local function tell(...) redis.call('PUBLISH', 'dip:1:changes', table.concat({...}, ' ')) end
local function tell_replica(job, attempt, replica) tell('replica', job, attempt, replica) end
local function tell_job(job) tell('job', job) end
local function tell_queue() tell('queue') end

-- Lets what a write touched live for so long without another one. No key of a job outlives the job's own hash.
local function touch(idle_ms, job, replica)
  local keys = {'dip:1:jobs', 'dip:1:closed', 'dip:1:turns', 'dip:1:counter', job_key(job)}
  for _, key in ipairs({queue_key(job), waiting_key(job), replicas_key(job), fell_back_key(job)}) do keys[#keys + 1] = key end
  if replica then
    local key = replica_key(job, replica)
    redis.call('SADD', replicas_key(job), replica)
    for _, part in ipairs({'', ':settled', ':unsettled', ':reports', ':reported'}) do keys[#keys + 1] = key .. part end
  end
  for _, key in ipairs(keys) do redis.call('PEXPIRE', key, idle_ms) end
end

-- Why an iteration of an attempt is not to be had: {'over'}, {'old', the oldest kept}; nil where it is.
local function refusal(job, attempt, replica, iteration, wants_open)
  local stands = redis.call('HMGET', job_key(job), 'attempt', 'closed')
  if stands[1] ~= attempt then return {'over'} end
  local oldest = redis.call('HGET', replica_key(job, replica), 'oldest') or ZERO
  if iteration < oldest then return {'old', oldest} end
  if wants_open and stands[2] == '1' then return {'over'} end
  return nil
end

-- ------------------------------------------------------------------------------------------------ the queue of a job

-- An entry as a member of the sorted set of those that nobody holds: the nearest iteration first, then the first to come;
-- behind all others what its replica is running by now.
local function member_of(id, is_running)
  return (is_running and '1' or '0') .. padded(string.match(id, '%-(%d+)$')) .. ':' .. id
end
local function id_of(member) return string.sub(member, 22) end

local function is_running(job, replica, iteration)
  return iteration <= (redis.call('HGET', replica_key(job, replica), 'running') or '')
end

-- The member that an entry is, or would be, now.
local function member_now(job, id)
  local entry = redis.call('XRANGE', queue_key(job), id, id)[1]
  return member_of(id, entry and is_running(job, entry[2][2], padded(string.match(id, '%-(%d+)$'))))
end

local function drop_queue(job)
  redis.call('UNLINK', queue_key(job), waiting_key(job))
  redis.call('ZREM', 'dip:1:turns', job)
end

-- Takes entries off, claimed or not. An empty queue is deleted: a job that has one is a job that has work.
local function dequeue(job, ids)
  local queue = queue_key(job)
  for _, id in ipairs(ids) do
    redis.call('XACK', queue, GROUP, id)
    redis.call('XDEL', queue, id)
    redis.call('ZREM', waiting_key(job), member_of(id, false), member_of(id, true))
  end
  if redis.call('XLEN', queue) == 0 then drop_queue(job) end
end

-- The consumers that hold entries, {consumer, how many}.
local function holders(job)
  local queue = queue_key(job)
  local summary = redis.pcall('XPENDING', queue, GROUP)
  if not summary.err then return summary[4] or {} end
  redis.call('XGROUP', 'CREATE', queue, GROUP, '0') -- somebody has deleted it, and with it who holds what
  for _, entry in ipairs(redis.call('XRANGE', queue, '-', '+')) do
    redis.call('ZADD', waiting_key(job), 0, member_now(job, entry[1]))
  end
  return {}
end

-- A planner's consumer is called '<lease in ms>:<name>', so that each entry tells how long its lease is.
local function consumer_of(name, lease_ms) return lease_ms .. ':' .. name end
local function lease_of(consumer) return tonumber(string.match(consumer, '^(%d+):')) end -- nil of WAITING
local function name_of(consumer) return string.match(consumer, '^%d+:(.*)$') end

-- The entry if the planner has claimed it, else nil: {id, consumer, idle, deliveries}.
local function owned(job, id, name)
  local found = redis.pcall('XPENDING', queue_key(job), GROUP, id, id, 1)
  if found.err then return nil end -- there is no such queue any more
  local entry = found[1]
  if entry and name_of(entry[2]) == name then return entry end
  return nil
end

-- Hands an entry over. XREADGROUP would hand out what came first; this hands out what is nearest.
local function give(job, id, consumer, deliveries)
  redis.call('XCLAIM', queue_key(job), GROUP, consumer, 0, id, 'RETRYCOUNT', deliveries, 'FORCE', 'JUSTID')
end

-- Writes down that a planner lives, and returns the solver processes of those that take every job's batches, and its own.
local function workers_with(idle_ms, name, lease_ms, workers, takes_all)
  local time = redis.call('TIME')
  local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local until_ms = string.format('%.0f', now_ms + tonumber(lease_ms))
  redis.call('HSET', 'dip:1:planners', name, until_ms .. ' ' .. workers .. ' ' .. takes_all)
  redis.call('PEXPIRE', 'dip:1:planners', idle_ms)
  local sum, planners = 0, redis.call('HGETALL', 'dip:1:planners')
  for at = 1, #planners, 2 do
    local ends_ms, its_workers, all = string.match(planners[at + 1], '^(%d+) (%d+) (%d)$')
    if planners[at] == name then
      sum = sum + tonumber(its_workers)
    elseif tonumber(ends_ms) <= now_ms then
      redis.call('HDEL', 'dip:1:planners', planners[at])
    elseif all == '1' then
      sum = sum + tonumber(its_workers)
    end
  end
  return sum
end

-- ------------------------------------------------------------------------------------------- what a replica has

-- Forgets one batch and its outcome; returns what the outcome took, and the id of its entry in the queue or false.
local function forget_iteration(key, iteration)
  local stands = redis.call('HMGET', key, iteration .. ':ranks', iteration .. ':bytes', iteration .. ':queue')
  local fields = {}
  for _, name in ipairs({'digest', 'batch', 'queue', 'ranks', 'answer', 'reason', 'summary', 'bytes'}) do
    fields[#fields + 1] = iteration .. ':' .. name
  end
  for rank = 0, tonumber(stands[1] or '0') - 1 do fields[#fields + 1] = iteration .. ':' .. rank end
  redis.call('HDEL', key, unpack(fields))
  return tonumber(stands[2] or '0'), stands[3]
end

local function forget_reports(key, iteration)
  local reports = key .. ':reports'
  local stands = redis.call('HMGET', reports, iteration .. ':ranks', iteration .. ':bytes')
  local fields = {iteration .. ':ranks', iteration .. ':bytes', iteration .. ':summary'}
  for rank in string.gmatch(stands[1] or '', '%d+') do fields[#fields + 1] = iteration .. ':' .. rank end
  redis.call('HDEL', reports, unpack(fields))
  redis.call('HINCRBY', key, 'reports_bytes', 0 - tonumber(stands[2] or '0')) -- Redis takes no -0
  redis.call('ZREM', key .. ':reported', iteration)
end

-- Counts bytes of batches that do not wait any more off what those of the job take that do.
local function count_off(job, bytes)
  if bytes > 0 then redis.call('HINCRBY', job_key(job), 'queued_bytes', 0 - bytes) end
end

-- What the outcomes of one replica may take.
local function share_of(job, kept_bytes)
  return math.floor(tonumber(kept_bytes) / tonumber(redis.call('HGET', job_key(job), 'replicas')))
end

-- Forgets batches without an outcome below an iteration ('+': all); returns the ids of their entries in the queue.
local function forget_unsettled(job, replica, below)
  local key, ids, bytes = replica_key(job, replica), {}, 0
  for _, iteration in ipairs(redis.call('ZRANGEBYLEX', key .. ':unsettled', '-', below)) do
    bytes = bytes + redis.call('HSTRLEN', key, iteration .. ':batch')
    local _, id = forget_iteration(key, iteration)
    redis.call('ZREM', key .. ':unsettled', iteration)
    if id then ids[#ids + 1] = id end
  end
  count_off(job, bytes)
  return ids
end

-- Writes the outcome of a batch that has none, and takes it off the queue.
local function settle_iteration(job, replica, iteration, outcome)
  local key = replica_key(job, replica)
  local id = redis.call('HGET', key, iteration .. ':queue')
  local fields = {iteration .. ':ranks', #outcome.responses, iteration .. ':bytes', outcome.num_bytes}
  local function add(name, value)
    if value ~= '' then
      fields[#fields + 1] = iteration .. ':' .. name
      fields[#fields + 1] = value
    end
  end
  add('answer', outcome.answer)
  add('reason', outcome.reason)
  add('summary', outcome.summary)
  for rank, response in ipairs(outcome.responses) do add(rank - 1, response) end
  count_off(job, redis.call('HSTRLEN', key, iteration .. ':batch'))
  redis.call('HDEL', key, iteration .. ':batch', iteration .. ':queue')
  redis.call('HSET', key, unpack(fields))
  redis.call('HINCRBY', key, 'bytes', outcome.num_bytes)
  redis.call('ZREM', key .. ':unsettled', iteration)
  redis.call('ZADD', key .. ':settled', 0, iteration)
  if id then dequeue(job, {id}) end
end

local function unplanned(reason) return {responses = {}, num_bytes = #reason, answer = '', reason = reason, summary = ''} end

-- Forgets all that a replica has below an iteration, which becomes the oldest one kept.
local function drop_below(job, replica, oldest)
  local key = replica_key(job, replica)
  for _, iteration in ipairs(redis.call('ZRANGEBYLEX', key .. ':settled', '-', '(' .. oldest)) do
    local bytes = forget_iteration(key, iteration)
    redis.call('HINCRBY', key, 'bytes', 0 - bytes)
    redis.call('ZREM', key .. ':settled', iteration)
  end
  redis.call('HSET', key, 'oldest', oldest)
  dequeue(job, forget_unsettled(job, replica, '(' .. oldest))
  for _, iteration in ipairs(redis.call('ZRANGEBYLEX', key .. ':reported', '-', '(' .. oldest)) do
    forget_reports(key, iteration)
  end
end

-- Forgets the lowest iterations of a replica, until no more are kept than may be, and all below them.
local function drop_oldest(job, replica, kept_iterations, kept_bytes)
  local key = replica_key(job, replica)
  local share = share_of(job, kept_bytes)
  local bytes = tonumber(redis.call('HGET', key, 'bytes') or '0')
  local count, dropped = redis.call('ZCARD', key .. ':settled'), 0
  local function lowest_kept() return redis.call('ZRANGE', key .. ':settled', dropped, dropped)[1] end
  while count > tonumber(kept_iterations) or (count > NEWEST_KEPT and bytes > share) do
    bytes = bytes - tonumber(redis.call('HGET', key, lowest_kept() .. ':bytes'))
    count, dropped = count - 1, dropped + 1
  end
  if dropped > 0 then drop_below(job, replica, lowest_kept()) end
end

-- --------------------------------------------------------------------------------------------------------- whole jobs

-- Notes of the newest iterations of a job whether a rank ran the fallback.
local function note_reported(job, iteration, fell_back)
  local key = fell_back_key(job)
  if fell_back == '1' then
    redis.call('HSET', key, iteration, 1)
  elseif redis.call('HSETNX', key, iteration, 0) == 0 then
    return
  end
  if redis.call('HLEN', key) <= RECENT_REPORTED then return end
  local lowest = iteration
  for _, known in ipairs(redis.call('HKEYS', key)) do
    if known < lowest then lowest = known end
  end
  redis.call('HDEL', key, lowest)
end

-- Forgets all that the job's current attempt has; the job itself stays.
local function drop_attempt(job)
  for _, replica in ipairs(redis.call('SMEMBERS', replicas_key(job))) do
    local key = replica_key(job, replica)
    redis.call('UNLINK', key, key .. ':settled', key .. ':unsettled', key .. ':reports', key .. ':reported')
  end
  redis.call('UNLINK', replicas_key(job), fell_back_key(job))
  drop_queue(job)
end

local function forget_job(job)
  drop_attempt(job)
  redis.call('UNLINK', job_key(job))
  redis.call('SREM', 'dip:1:jobs', job)
  redis.call('ZREM', 'dip:1:closed', job)
end
