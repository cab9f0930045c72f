-- job, attempt, how many iterations, the newest of them ('': the newest known), replicas: {'recent', {replica, iteration,
-- digest or false where no batch is known, number of ranks or false without an outcome, reason, summary, what ranks
-- reported}, ...}, by replica in the order asked for, iterations ascending; or {'over'}.
local job, attempt, count, newest = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if redis.call('HGET', job_key(job), 'attempt') ~= attempt then return {'over'} end

-- The newest iterations that a replica has anything of, ascending.
local function newest_of(key)
  local from = newest == '' and '+' or '[' .. newest
  local seen, found = {}, {}
  for _, part in ipairs({':settled', ':unsettled', ':reported'}) do
    for _, iteration in ipairs(redis.call('ZREVRANGEBYLEX', key .. part, from, '-', 'LIMIT', 0, count)) do
      if not seen[iteration] then found[#found + 1] = iteration end
      seen[iteration] = true
    end
  end
  table.sort(found)
  return found
end

local told = {'recent'}
for at = 5, #ARGV do
  local replica = ARGV[at]
  local key = replica_key(job, replica)
  local found = newest_of(key)
  for place = math.max(1, #found - count + 1), #found do
    local iteration, fields = found[place], {}
    for _, name in ipairs({'digest', 'ranks', 'reason', 'summary'}) do fields[#fields + 1] = iteration .. ':' .. name end
    local kept = redis.call('HMGET', key, unpack(fields))
    local reported = redis.call('HGET', key .. ':reports', iteration .. ':summary')
    told[#told + 1] = {replica, iteration, kept[1], kept[2], kept[3], kept[4], reported}
  end
end
return told
