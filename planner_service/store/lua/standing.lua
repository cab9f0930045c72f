-- job: of each replica highest iteration with an outcome or false, highest one reported or false, bytes of outcomes, bytes
-- of reports, one behind the other; false where there is no such job, or it is closed.
local job = ARGV[1]
local closed = redis.call('HGET', job_key(job), 'closed')
if closed ~= '0' then return false end
local found = {}
for _, replica in ipairs(redis.call('SMEMBERS', replicas_key(job))) do
  local key = replica_key(job, replica)
  local stands = redis.call('HMGET', key, 'reported', 'bytes', 'reports_bytes')
  found[#found + 1] = redis.call('ZRANGE', key .. ':settled', -1, -1)[1] or false
  for at = 1, 3 do found[#found + 1] = stands[at] end
end
return found
