-- KEYS: main key
-- ARGV: token, name
-- Answers: 1 when a ticket with that token was there, else 0. The token of a holder
-- that another library put there is its value's fingerprint.
local key, token = KEYS[1], ARGV[1]
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
--#include value.lua
--#include queue.lua
--#include take.lua

local v = value(key)
local id, t, chan = string.match(v or '', '^locker[ ?](%S+) (%d+) %d+ (%S+) ')
if id and t == token then
  call('DEL', key) -- before anybody is notified: a replica publishes, and refuses to write
  call('PUBLISH', chan, 'l' .. id .. ' ' .. token .. ' x ' .. ARGV[2])
  settle(false)
  return 1
end
if v and not ours(v) and fingerprint(v) == token then
  settle(false)
  return 1
end
if v == MARK then
  id, chan = take(H)
  if id then
    call('PUBLISH', chan, 'l' .. id .. ' ' .. token .. ' s ' .. ARGV[2])
    settle(v)
    return 1
  end
end
for _, set in ipairs({X, S}) do
  id, chan = take(set)
  if id then
    call('PUBLISH', chan, 'l' .. id .. ' ' .. token .. (set == X and ' x ' or ' s ') .. ARGV[2])
    settle(v)
    return 1
  end
end
call('ZREM', X, '') -- a replica must not say that there is none, and refuses to write
return 0
