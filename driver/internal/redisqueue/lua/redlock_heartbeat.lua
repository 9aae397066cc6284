-- KEYS: main key
-- ARGV: channel, "x" or "s" and id of some tickets of that process
-- Answers: {after, flags (see outlook), for each ticket: 0 gone, 1 waiting, 2 holds, 3 may hold}
local key, chan = KEYS[1], ARGV[1]
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
--#include value.lua
--#include redlock_queue.lua

local function set(arg) return string.sub(arg, 1, 1) == 'x' and X or S end

-- A replica must not say that a ticket is gone, and refuses to write. Where memory is
-- short, Redis refuses only a first write, and of those that remove none.
call('ZREM', P, '')
if lapsed(chan) then reap() end
-- Whose tickets are gone is not taken for alive.
local waits = call('ZSCORE', P, chan) and X
for i = 2, #ARGV do
  if call('ZSCORE', set(ARGV[i]), string.sub(ARGV[i], 2)) then waits = set(ARGV[i]) end
end
if waits then
  alive(chan, waits)
else
  call('ZREM', P, chan)
end
local v = current()
notify(v)
local after, flags = outlook(v, chan)
local dead = silent(first())
if dead and (after < 0 or dead < after) then after, flags = dead, flags - flags % 2 + 1 end
local answer = {after, flags}
for i = 2, #ARGV do
  local id, state = string.sub(ARGV[i], 2), 0
  local number = tonumber(call('ZSCORE', set(ARGV[i]), id) or nil)
  local rec = number and call('HGET', T, id)
  if rec then
    local _, limit = string.match(rec, HEAD)
    state = hasRoom(v, set(ARGV[i]) == X, number, tonumber(limit)) and 3 or 1
  elseif holds(v, id) or v == MARK and call('ZSCORE', H, id) then
    state = 2
  end
  answer[i + 1] = state
end
return answer
