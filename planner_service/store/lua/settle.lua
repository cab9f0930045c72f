-- idle_ms, kept iterations, kept bytes, job, attempt, replica, iteration, digest, whether it is a plan, what the outcome
-- takes, answer, reason, summary, response of each rank: {'settled', 1, or 0 where another outcome stands or no such batch}, or a
-- refusal.
local idle_ms, kept_iterations, kept_bytes = ARGV[1], ARGV[2], ARGV[3]
local job, attempt, replica, iteration, digest = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local is_plan, outcome = ARGV[9] == '1', {num_bytes = ARGV[10], answer = ARGV[11], reason = ARGV[12], summary = ARGV[13], responses = {}}
for at = 14, #ARGV do outcome.responses[#outcome.responses + 1] = ARGV[at] end

local refused = refusal(job, attempt, replica, iteration, true)
if refused then return refused end
local stands = redis.call('HMGET', replica_key(job, replica), iteration .. ':digest', iteration .. ':ranks')
if stands[1] ~= digest or stands[2] then return {'settled', 0} end
settle_iteration(job, replica, iteration, outcome)
drop_oldest(job, replica, kept_iterations, kept_bytes)
if is_plan and (redis.call('HGET', job_key(job), 'planned') or '') < iteration then
  redis.call('HSET', job_key(job), 'planned', iteration)
end
touch(idle_ms, job, replica)
tell_replica(job, attempt, replica)
return {'settled', 1}
