-- KEYS: main key
-- ARGV: id and, when a request for this ticket may still be on its way, anything
-- Answers: 1 when the ticket was there, else 0.
local key, id = KEYS[1], ARGV[1]
--#include value.lua
local v = value(key)
if v and not ARGV[2] and string.sub(v, 1, #id + 9) == 'redlock ' .. id .. ' ' and
  redis.call('EXISTS', key .. ':rx', key .. ':rs') == 0 then
  redis.call('DEL', key)
  return 1
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--#include redlock_line.lua

v = current()
local found = false
if holds(v, id) then
  call('DEL', key)
  v, found = false, true
elseif v == MARK and call('ZREM', H, id) == 1 then
  call('ZREM', E, id)
  v, found = mark(), true
end
if call('ZREM', X, id) + call('ZREM', S, id) > 0 then found = true end
-- Also when there is nothing: a replica must not say so, and refuses to write.
call('HDEL', T, id)
if ARGV[2] then
  call('SADD', D, id)
  call('PEXPIRE', D, 5000) -- by then they have come, or are lost
end
if found or dead then announce(v) end
return found and 1 or 0
