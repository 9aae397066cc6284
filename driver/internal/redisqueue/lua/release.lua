-- KEYS: main key
-- ARGV: id, and how many requests for this ticket may still be on their way
-- Answers: 1 when the ticket was there, else 0.
local key, id = KEYS[1], ARGV[1]
local call = redis.call
local v = redis.pcall('GET', key)
local found = type(v) == 'string' and string.sub(v, 8, #id + 8) == id .. ' ' and string.sub(v, 1, 6) == 'locker'

-- The two cases of a mutex come first and are complete in themselves: nobody waits, or
-- the first waiter, exclusive, lives and is granted.
if found and ARGV[2] == '0' then
  local X, T, P = key .. ':x', key .. ':t', key .. ':p'
  local there = call('EXISTS', X, key .. ':s')
  if there == 0 then
    call('DEL', key)
    return 1
  end
  local heads = call('ZRANGE', X, '0', '1', 'WITHSCORES')
  local head = heads[1]
  local rest, chan = string.match(head and there == 1 and call('HGET', T, head) or '', '^%d+( (%S+) .*)$')
  local till = chan and call('ZSCORE', P, chan)
  if till then
    local time = call('TIME')
    local now = time[1] * 1000000 + time[2]
    local left = (till - now) / 1000
    if left > 0 then
      call('ZREM', X, head) -- before anybody is notified: a replica publishes, and refuses to write
      call('PUBLISH', chan, string.format('g%d ', left) .. heads[2] .. ' ' .. head)
      call('HDEL', T, head)
      local since = time[1] .. string.sub('00000' .. time[2], -6) -- '%.0f' takes longer than a command
      call('SET', key, 'locker?' .. head .. ' ' .. heads[2] .. ' ' .. since .. rest, 'PX', math.ceil(left))
      if not heads[3] then call('DEL', P, T) end
      return 1
    end
  end
end

--#include queue.lua

v = value(key)
if found then
  call('DEL', key) -- the first write, which Redis does not refuse where memory is short
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
expect(id, tonumber(ARGV[2]))
if not found then return 0 end
settle(v)
return 1
