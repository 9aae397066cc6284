-- For break.lua and redlock_break.lua, after the queue that they include.

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
