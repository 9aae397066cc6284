-- KEYS: main key
-- ARGV: channel, "x" or "s" and id of some tickets of that process
-- Answers: {after, flags (see outlook), for each ticket: 0 gone, 1 waiting, 2 holds, 3 may hold}
local key, chan = KEYS[1], ARGV[1]
--#include redlock_queue.lua

heard(chan)
local v = current()
notify(v)
local after, flags = outlook(v, chan)
local dead = silent(first())
if dead and (after < 0 or dead < after) then after, flags = dead, flags - flags % 2 + 1 end
local answer = {after, flags}
for i = 2, #ARGV do
  local id, state = string.sub(ARGV[i], 2), 0
  local number, set = wants(ARGV[i])
  local rec = number and call('HGET', T, id)
  if rec then
    local _, limit = string.match(rec, HEAD)
    state = hasRoom(v, set == X, tonumber(number), tonumber(limit)) and 3 or 1
  elseif holds(v, id) or v == MARK and call('ZSCORE', H, id) then
    state = 2
  end
  answer[i + 1] = state
end
return answer
