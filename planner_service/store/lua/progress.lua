-- job: {planned, reported, batches without an outcome, newest iterations that were reported, in how many of them a rank
-- ran the fallback, milliseconds that the job has to live without another write}, {} where there is no such job.
local job = ARGV[1]
local left_ms = redis.call('PTTL', job_key(job))
if left_ms == -2 then return {} end
local reached = redis.call('HMGET', job_key(job), 'planned', 'reported')
local noted, num_fell_back = redis.call('HVALS', fell_back_key(job)), 0
for _, fell_back in ipairs(noted) do num_fell_back = num_fell_back + tonumber(fell_back) end
return {reached[1], reached[2], redis.call('XLEN', queue_key(job)), #noted, num_fell_back, left_ms}
