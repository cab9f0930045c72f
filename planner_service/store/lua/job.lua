-- job, stamp: the record as {attempt, spec, partition, replicas, closed, owner, version, stamp}, {'same'} where its stamp
-- is the one that the caller knows already, {} where there is no such job.
local job, known = ARGV[1], ARGV[2]
local stamp = redis.call('HGET', job_key(job), 'stamp')
if not stamp then return {} end
if stamp == known then return {'same'} end
return redis.call(
  'HMGET', job_key(job), 'attempt', 'spec', 'partition', 'replicas', 'closed', 'owner', 'version', 'stamp')
