-- job, attempt, replica, iteration that a rank has run by now ('': what the reports say): forgets what is of earlier ones;
-- 1, or 0 where there is nothing to forget.
local job, attempt, replica, run = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local key = replica_key(job, replica)
if run == '' then run = redis.call('HGET', key, 'reported') or ZERO end
if refusal(job, attempt, replica, run, true) then return 0 end
local found = 0
for _, part in ipairs({':settled', ':unsettled', ':reported'}) do
  found = found + redis.call('ZLEXCOUNT', key .. part, '-', '(' .. run)
end
if found == 0 then return 0 end
drop_below(job, replica, run)
tell_replica(job, attempt, replica)
return 1
