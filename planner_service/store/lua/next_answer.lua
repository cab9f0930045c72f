-- job, attempt, replica, rank, first iteration: {'answer', iteration, response or false, reason or false}, {'none'}, or a
-- refusal.
local job, attempt, replica, rank, first = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local refused = refusal(job, attempt, replica, first, true)
if refused then return refused end
local key = replica_key(job, replica)
local settled = redis.call('ZRANGEBYLEX', key .. ':settled', '[' .. first, '+', 'LIMIT', 0, 1)[1]
if not settled then return {'none'} end
local unsettled = redis.call('ZRANGEBYLEX', key .. ':unsettled', '[' .. first, '+', 'LIMIT', 0, 1)[1]
if unsettled and unsettled < settled then return {'none'} end
local found = redis.call('HMGET', key, settled .. ':' .. rank, settled .. ':reason')
return {'answer', settled, found[1], found[2]}
