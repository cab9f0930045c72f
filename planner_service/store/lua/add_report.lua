-- idle_ms, kept iterations, kept bytes, job, attempt, replica, iteration, rank, report, reason of what is late by now,
-- the iteration after this one, the report's summary, whether the rank fell back: {'written', 1, how many are late}, {'written', 0} where there is one already, or a refusal.
local idle_ms, kept_iterations, kept_bytes = ARGV[1], ARGV[2], ARGV[3]
local job, attempt, replica, iteration, rank = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local report, late_reason, running = ARGV[9], ARGV[10], ARGV[11]
local summary, fell_back = ARGV[12], ARGV[13]

local refused = refusal(job, attempt, replica, iteration, true)
if refused then return refused end
local key = replica_key(job, replica)
if redis.call('HSETNX', key .. ':reports', iteration .. ':' .. rank, report) == 0 then return {'written', 0} end
local before = redis.call('HMGET', key .. ':reports', iteration .. ':ranks', iteration .. ':summary')
redis.call('HSET', key .. ':reports', iteration .. ':ranks', before[1] and before[1] .. ' ' .. rank or rank,
  iteration .. ':summary', (before[2] or '') .. summary)
redis.call('HINCRBY', key .. ':reports', iteration .. ':bytes', #report + #summary)
redis.call('HINCRBY', key, 'reports_bytes', #report + #summary)
redis.call('ZADD', key .. ':reported', 0, iteration)
local share = math.floor(share_of(job, kept_bytes) / REPORTS_PART)
local function too_many()
  local count = redis.call('ZCARD', key .. ':reported')
  local bytes = tonumber(redis.call('HGET', key, 'reports_bytes'))
  return count > tonumber(kept_iterations) or (count > 1 and bytes > share)
end
while too_many() do forget_reports(key, redis.call('ZRANGE', key .. ':reported', 0, 0)[1]) end

if (redis.call('HGET', key, 'reported') or '') < iteration then
  redis.call('HSET', key, 'reported', iteration, 'running', running)
  local id = redis.call('HGET', key, running .. ':queue')
  if id and redis.call('ZREM', waiting_key(job), member_of(id, false)) == 1 then
    redis.call('ZADD', waiting_key(job), 0, member_of(id, true))
  end
end
if (redis.call('HGET', job_key(job), 'reported') or '') < iteration then
  redis.call('HSET', job_key(job), 'reported', iteration)
end
note_reported(job, iteration, fell_back)
local late = redis.call('ZRANGEBYLEX', key .. ':unsettled', '-', '[' .. iteration)
for _, unsettled in ipairs(late) do settle_iteration(job, replica, unsettled, unplanned(late_reason)) end
drop_oldest(job, replica, kept_iterations, kept_bytes)
touch(idle_ms, job, replica)
if #late > 0 then tell_replica(job, attempt, replica) end
return {'written', 1, #late}
