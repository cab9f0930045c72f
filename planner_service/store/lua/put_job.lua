-- idle_ms, kept closed jobs, job, version, attempt, spec, partition, replicas, closed, owner, stamp: 1, or 0 where the
-- version that stands is another.
local idle_ms, kept_closed, job, version, attempt = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local spec, partition, replicas, closed = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local owner, stamp = ARGV[10], ARGV[11]

local key = job_key(job)
local stands = redis.call('HMGET', key, 'version', 'attempt')
if (stands[1] or '0') ~= version then return 0 end

for _, known in ipairs(redis.call('SMEMBERS', 'dip:1:jobs')) do
  if redis.call('EXISTS', job_key(known)) == 0 then forget_job(known) end -- it was idle for too long
end
if stands[2] ~= attempt then
  drop_attempt(job)
  redis.call('HDEL', key, 'planned', 'reported')
elseif closed == '1' then
  for _, replica in ipairs(redis.call('SMEMBERS', replicas_key(job))) do
    forget_unsettled(job, replica, '+')
    redis.call('HDEL', replica_key(job, replica), 'running')
  end
  drop_queue(job)
end
redis.call('HSET', key, 'attempt', attempt, 'spec', spec, 'partition', partition, 'replicas', replicas,
  'closed', closed, 'owner', owner, 'stamp', stamp)
redis.call('HINCRBY', key, 'version', 1)
-- Ids in queues start at the time, so that a job that was forgotten and comes again gives no id twice.
redis.call('HSETNX', key, 'counter', redis.call('TIME')[1] .. '000')
redis.call('SADD', 'dip:1:jobs', job)
redis.call('ZREM', 'dip:1:closed', job)
if closed == '1' then redis.call('ZADD', 'dip:1:closed', redis.call('INCR', 'dip:1:counter'), job) end
touch(idle_ms, job)
tell_job(job)
while redis.call('ZCARD', 'dip:1:closed') > kept_closed do
  local forgotten = redis.call('ZPOPMIN', 'dip:1:closed')[1]
  forget_job(forgotten)
  tell_job(forgotten)
end
return 1
