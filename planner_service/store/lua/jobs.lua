-- {job, record}, {job, record}, ...: of every job, records as `job` returns them. ARGV holds the stamps that the caller knows.
local known = {}
for _, stamp in ipairs(ARGV) do known[stamp] = true end
local found = {}
for _, job in ipairs(redis.call('SMEMBERS', 'dip:1:jobs')) do
  local stamp = redis.call('HGET', job_key(job), 'stamp')
  if stamp and known[stamp] then
    found[#found + 1] = {job, {'same'}}
  elseif stamp then
    local record = redis.call(
      'HMGET', job_key(job), 'attempt', 'spec', 'partition', 'replicas', 'closed', 'owner', 'version', 'stamp')
    found[#found + 1] = {job, record}
  end
end
return found
