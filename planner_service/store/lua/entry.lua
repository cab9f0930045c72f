-- job, attempt, replica, iteration: {'entry', digest, number of ranks or false without an outcome, answer, reason,
-- summary, response of each rank}, {'none'}, or a refusal.
local job, attempt, replica, iteration = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local refused = refusal(job, attempt, replica, iteration, false)
if refused then return refused end
local key, fields = replica_key(job, replica), {}
for _, name in ipairs({'digest', 'ranks', 'answer', 'reason', 'summary'}) do fields[#fields + 1] = iteration .. ':' .. name end
local found = redis.call('HMGET', key, unpack(fields))
if not found[1] then return {'none'} end
local entry = {'entry', found[1], found[2], found[3], found[4], found[5]}
for rank = 0, tonumber(found[2] or '0') - 1 do
  entry[#entry + 1] = redis.call('HGET', key, iteration .. ':' .. rank)
end
return entry
