-- job, attempt, replica, first iteration, ranks: {'answer', iteration, whether the next one known has an outcome too,
-- reason or false, the response of each rank}, {'none'}, or a refusal.
local job, attempt, replica, first = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local refused = refusal(job, attempt, replica, first, true)
if refused then return refused end
local key = replica_key(job, replica)
local settled = redis.call('ZRANGEBYLEX', key .. ':settled', '[' .. first, '+', 'LIMIT', 0, 2)
if #settled == 0 then return {'none'} end
local unsettled = redis.call('ZRANGEBYLEX', key .. ':unsettled', '[' .. first, '+', 'LIMIT', 0, 1)[1]
if unsettled and unsettled < settled[1] then return {'none'} end
local more = settled[2] and not (unsettled and unsettled < settled[2])
local fields = {settled[1] .. ':reason'}
for at = 5, #ARGV do fields[#fields + 1] = settled[1] .. ':' .. ARGV[at] end
return {'answer', settled[1], more and 1 or 0, unpack(redis.call('HMGET', key, unpack(fields)))}
