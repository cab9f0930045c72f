-- idle_ms, name, lease_ms, workers, whether it takes every job, and job and token of each claim: which of the claims, by
-- place from 0, are lost.
local idle_ms, name, lease_ms, workers, takes_all = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local lost = {}
for at = 6, #ARGV, 2 do
  local entry = owned(ARGV[at], ARGV[at + 1], name)
  if entry then
    give(ARGV[at], ARGV[at + 1], consumer_of(name, lease_ms), entry[4])
  else
    lost[#lost + 1] = (at - 6) / 2
  end
end
workers_with(idle_ms, name, lease_ms, workers, takes_all)
return lost
