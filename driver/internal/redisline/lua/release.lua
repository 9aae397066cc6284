-- KEYS: main key
-- ARGV: id and, unless 0, how many requests for this ticket may still be on their way
-- Answers: 1 when the ticket was there, else 0.
local key, id = KEYS[1], ARGV[1]
--#include value.lua
local v = value(key)
local found = v and string.sub(v, 8, #id + 8) == id .. ' ' and string.sub(v, 1, 6) == 'locker'
if found and not ARGV[2] and redis.call('EXISTS', key .. ':x', key .. ':s') == 0 then
  redis.call('DEL', key)
  return 1
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--#include line.lua

if found then
  v = false
else
  if v == MARK and call('ZREM', H, id) == 1 then
    call('ZREM', E, id)
    found = true
  else
    found = call('ZREM', X, id) + call('ZREM', S, id) > 0
  end
  -- Also when there is nothing: a replica must not say so, and refuses to write.
  call('HDEL', T, id)
end
local strays = tonumber(ARGV[2] or 0)
if found then strays = strays - 1 end
if strays > 0 then
  call('ZADD', key .. ':d', strays, id)
  call('PEXPIRE', key .. ':d', 5000) -- by then they have come, or are lost
end
if not found then return 0 end
settle(v)
return 1
