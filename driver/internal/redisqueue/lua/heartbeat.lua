-- KEYS: main key; in a Cluster also the others of the queue
-- ARGV: channel, "x" or "s" and id of some tickets of that process
-- Answers: {after, flags (see outlook), for each ticket: 0 gone, 1 waiting, 2 held}.
-- The flags contain 4 if the process does not listen to this server, but perhaps to
-- one that is a replica now. In a Cluster, it may listen to any server.
local key, chan = KEYS[1], ARGV[1]
--#include queue.lua

heard(chan)
settle(value(key))
local v, t = value(key), first()
local after, poll, foreign = outlook(v)
local dead = silent(t)
if dead and (after < 0 or dead < after) then after, poll = dead, true end
local unsubscribed = not KEYS[2] and call('PUBLISH', chan, '') == 0
local answer = {after, foreign + ((poll or t and t.chan == chan) and 1 or 0) + (unsubscribed and 4 or 0)}
for i = 2, #ARGV do
  local id, state = string.sub(ARGV[i], 2), 0
  if wants(ARGV[i]) then
    state = 1
  elseif holds(v, id) or v == MARK and call('ZSCORE', H, id) then
    state = 2
  end
  answer[i + 1] = state
end
return answer
