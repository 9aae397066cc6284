-- KEYS: main key
-- ARGV: token, name and perhaps how many ms an exclusive waiter has to have waited
-- Answers: 1 when a ticket with that token was there, else 0, and 2 if it is to be asked again, since that one waits for less. The token of a holder
-- that another library put there is its value's fingerprint.
local key, token = KEYS[1], ARGV[1]
--#include queue.lua

-- fingerprint is the token with which Inspect shows another library's holder. It depends
-- on the value alone, and is smaller than the tokens of tickets.
local function fingerprint(v) return int(tonumber(string.sub(redis.sha1hex(v), 1, 8), 16) + 1) end

-- take removes the ticket with the token from a set, and returns its ID and its channel.
local function take(set)
  local id = call('ZRANGEBYSCORE', set, token, token)[1]
  if not id then return nil end
  local chan = string.match(call('HGET', T, id) or '', HEAD)
  call('ZREM', set, id)
  call('ZREM', E, id)
  call('HDEL', T, id)
  return id, chan or ''
end

local young = ARGV[3] and call('ZRANGEBYSCORE', X, token, token)[1]
local queued = young and string.match(call('HGET', T, young) or '', '^(%d+) ')
if queued and now - queued < ARGV[3] * 1000 then
  call('ZREM', X, '') -- a replica must not answer
  return 2
end

local v, found = current(), false
local function lost(chan, id, kind)
  call('PUBLISH', chan, 'l' .. id .. ' ' .. token .. ' ' .. kind .. ' ' .. ARGV[2])
  found = true
end
local id, number, chan = string.match(v or '', HOLDER)
if number == token or v and not ours(v) and fingerprint(v) == token then
  call('DEL', key) -- before anybody is notified: a replica publishes, and refuses to write
  v, found = false, true
  if id then lost(chan, id, 'x') end
elseif v == MARK then
  id, chan = take(H)
  if id then
    lost(chan, id, 's')
    v = mark()
  end
end
for _, set in ipairs({X, S}) do
  id, chan = take(set)
  if id then lost(chan, id, set == X and 'x' or 's') end
end
call('ZREM', X, '') -- a replica must not say that there is none, and refuses to write
if found or reaped then move(v) end
return found and 1 or 0
