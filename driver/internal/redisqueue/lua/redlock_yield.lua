-- KEYS: main key
-- ARGV: id, round
-- A ticket that holds here since that round or an earlier one, and not on a majority,
-- waits again.
-- Answers: 1 when it might hold, else 0.
local key, id, round = KEYS[1], ARGV[1], tonumber(ARGV[2])
--#include redlock_queue.lua

local v = current()
if holds(v, id) then
  local number, rec = string.match(v, '^redlock %S+ (%d+) (.*)$')
  if tonumber(string.match(rec, '^%d+')) > round then return 0 end
  call('DEL', key)
  wait(true, id, tonumber(number), rec)
  notify(false, id)
  return may(false, true, tonumber(number)) and 1 or 0
end
local number = v == MARK and call('ZSCORE', H, id)
local rec = number and call('HGET', T, id)
if not rec or tonumber(string.match(rec, '^%d+')) > round then return 0 end
call('ZREM', H, id)
call('ZREM', E, id)
v = mark()
wait(false, id, tonumber(number), rec)
notify(v, id)
local _, limit = string.match(rec, HEAD)
return may(v, false, tonumber(number), tonumber(limit)) and 1 or 0
