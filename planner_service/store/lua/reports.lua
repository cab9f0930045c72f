-- job, attempt, replica, iteration: {'reports', rank, report, rank, report, ...}, or a refusal.
local job, attempt, replica, iteration = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local refused = refusal(job, attempt, replica, iteration, false)
if refused then return refused end
local reports, found = replica_key(job, replica) .. ':reports', {'reports'}
for rank in string.gmatch(redis.call('HGET', reports, iteration .. ':ranks') or '', '%d+') do
  found[#found + 1] = rank
  found[#found + 1] = redis.call('HGET', reports, iteration .. ':' .. rank)
end
return found
