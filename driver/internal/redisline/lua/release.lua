-- KEYS: main key
-- ARGV: id, how many requests for this ticket may still be on their way,
-- for how many ms to remember that
-- Answers: 1 when the ticket was there, else 0.
local key, id = KEYS[1], ARGV[1]
local v = redis.call('GET', key)
local mine = v and string.sub(v, 1, #id + 8) == 'locker ' .. id .. ' '
if mine then
  redis.call('DEL', key)
  if ARGV[2] == '0' and redis.call('EXISTS', key .. ':x', key .. ':s') == 0 then return 1 end
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--#include line.lua

local found = mine
if not found and v == MARK and call('ZREM', H, id) == 1 then
  call('ZREM', E, id)
  found = true
end
if not found then found = call('ZREM', X, id) + call('ZREM', S, id) > 0 end
if not mine then
  -- Also when there is nothing: a replica must not say so, and refuses to write.
  call('HDEL', T, id)
end
local strays = tonumber(ARGV[2])
if found then strays = strays - 1 end
if strays > 0 then
  call('ZADD', key .. ':d', strays, id)
  call('PEXPIRE', key .. ':d', ARGV[3])
end
if not found then return 0 end
settle()
return 1
