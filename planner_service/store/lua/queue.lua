-- {batches that no planner has, batches that one has, milliseconds since the oldest of the former came or 0}: of all jobs.
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local num_waiting, num_claimed, oldest_ms = 0, 0, now_ms

-- Ids of a job's entries whose leases last, and how many there are.
local function leased(queue)
  local ids, count = {}, 0
  local summary = redis.pcall('XPENDING', queue, GROUP)
  if summary.err then return ids, count end -- somebody has deleted the group: nobody holds anything
  for _, holder in ipairs(summary[4] or {}) do
    local lease_ms = lease_of(holder[1])
    if lease_ms then
      for _, entry in ipairs(redis.call('XPENDING', queue, GROUP, '-', '+', ALL, holder[1])) do
        if entry[3] < lease_ms then ids[entry[1]], count = true, count + 1 end
      end
    end
  end
  return ids, count
end

for _, job in ipairs(redis.call('ZRANGE', 'dip:1:turns', 0, -1)) do
  local queue = queue_key(job)
  if redis.call('EXISTS', queue) == 1 then
    local ids, count = leased(queue)
    num_claimed = num_claimed + count
    num_waiting = num_waiting + redis.call('XLEN', queue) - count
    -- Entries stand in the order in which they came.
    for _, entry in ipairs(redis.call('XRANGE', queue, '-', '+', 'COUNT', count + 1)) do
      if not ids[entry[1]] then
        oldest_ms = math.min(oldest_ms, tonumber(entry[2][4] or '') or now_ms) -- an older planner did not write when
        break
      end
    end
  end
end
return {num_waiting, num_claimed, now_ms - oldest_ms}
