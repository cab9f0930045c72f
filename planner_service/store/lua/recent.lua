-- job, attempt, how many iterations, the newest of them ('': the newest known), replicas: {'recent', {replica, numbers,
-- text}, ...}, by replica in the order asked for, or {'over'}. A replica's numbers are six of each iteration, ascending:
-- the iteration, whether its batch is known, whether it has an outcome, and the bytes of reason, summary and what ranks
-- reported, which stand in the text one behind the other. Few answers: a client takes long to read many.
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
  local found, numbers, text = newest_of(key), {}, {}
  for place = math.max(1, #found - count + 1), #found do
    local iteration = found[place]
    local kept = redis.call('HMGET', key, iteration .. ':digest', iteration .. ':ranks', iteration .. ':reason',
      iteration .. ':summary')
    local reason, summary = kept[3] or '', kept[4] or ''
    local reported = redis.call('HGET', key .. ':reports', iteration .. ':summary') or ''
    numbers[#numbers + 1] = table.concat(
      {iteration, kept[1] and 1 or 0, kept[2] and 1 or 0, #reason, #summary, #reported}, ' ')
    text[#text + 1] = reason .. summary .. reported
  end
  if #numbers > 0 then told[#told + 1] = {replica, table.concat(numbers, ' '), table.concat(text)} end
end
return told
