-- KEYS: main key; in a Cluster also the others of the queue
-- ARGV: channel, "x" or "s" and id of some tickets of that process
-- Answers: {after, flags (see outlook), for each ticket: 0 gone, 1 waiting, 2 held}.
-- The flags contain 4 if the process does not listen to this server, but perhaps to
-- one that is a replica now. In a Cluster, it may listen to any server.
local key, chan = KEYS[1], ARGV[1]
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
--#include value.lua
--#include queue.lua

local function waits(arg)
  return call('ZSCORE', string.sub(arg, 1, 1) == 'x' and X or S, string.sub(arg, 2))
end

-- A replica must not say that a ticket is gone, and refuses to write. Where memory is
-- short, Redis refuses only a first write, and of those that remove none.
call('ZREM', P, '')
local set = call('ZSCORE', P, chan) and X
if set and lapsed(chan) then
  reap()
  set = nil
end
for i = 2, #ARGV do
  if waits(ARGV[i]) then
    set = string.sub(ARGV[i], 1, 1) == 'x' and X or S
    break
  end
end
if set then
  alive(chan, set)
else
  call('ZREM', P, chan)
end
settle(value(key))
local v, t = value(key), first()
local after, poll, foreign = outlook(v)
local dead = silent(t)
if dead and (after < 0 or dead < after) then after, poll = dead, true end
local unsubscribed = not KEYS[2] and call('PUBLISH', chan, '') == 0
local answer = {after, foreign + ((poll or t and t.chan == chan) and 1 or 0) + (unsubscribed and 4 or 0)}
for i = 2, #ARGV do
  local id, state = string.sub(ARGV[i], 2), 0
  if waits(ARGV[i]) then
    state = 1
  elseif holds(v, id) or v == MARK and call('ZSCORE', H, id) then
    state = 2
  end
  answer[i + 1] = state
end
return answer
