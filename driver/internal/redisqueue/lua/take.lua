-- For break.lua and redlock_break.lua, after the queue that they include: take
-- removes the ticket with the token from a set, and returns its ID and its channel.
local function take(set)
  local id = call('ZRANGEBYSCORE', set, token, token)[1]
  if not id then return nil end
  local chan = string.match(call('HGET', T, id) or '', HEAD)
  call('ZREM', set, id)
  call('ZREM', E, id)
  call('HDEL', T, id)
  return id, chan or ''
end
