-- KEYS: main keys, one for each lease
-- ARGV: id and ttl ms for each
-- Answers: for each, 1 when the lease now lasts for ttl at least, 0 when the
-- ticket does not hold. The renewal of a provisional lease (see queue.lua) confirms it: the
-- lease then lasts for ttl and no longer.
--#include value.lua
local call = redis.call

-- Where memory is short, Redis refuses a first write that may need more. So the first
-- one, here and below, is one that does not.
local function exclusive(key, v, id, ttl)
  if string.sub(v, 7, 7) == '?' then
    call('PEXPIRE', key, ttl)
    call('SET', key, 'locker ' .. string.sub(v, 8), 'PX', ttl)
  elseif call('PTTL', key) < tonumber(ttl) then
    call('PEXPIRE', key, ttl)
  end
  return 1
end

local function shared(key, id, ttl)
  local time = call('TIME')
  local now = time[1] * 1000000 + time[2]
  local E, T = key .. ':e', key .. ':t'
  local till, rec = tonumber(call('ZSCORE', E, id) or 0), call('HGET', T, id)
  if till <= now or not rec then return 0 end
  call('HDEL', T, '')
  local new = now + ttl * 1000
  if string.sub(rec, 1, 1) == '?' then
    call('HSET', T, id, string.sub(rec, 2))
  else
    new = math.max(till, new)
  end
  call('ZADD', E, string.format('%.0f', new), id)
  local last = call('ZREVRANGE', E, '0', '0', 'WITHSCORES')[2]
  call('PEXPIRE', key, math.ceil((last - now) / 1000))
  for _, k in ipairs({key .. ':h', E, T}) do
    if call('PTTL', k) < tonumber(ttl) then call('PEXPIRE', k, ttl) end
  end
  return 1
end

local answers = {}
for i = 1, #ARGV / 2 do
  local key, id, ttl = KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]
  local v = value(key)
  local answer = 0
  if v == 'locker *' then
    answer = shared(key, id, ttl)
  elseif v and string.sub(v, 8, #id + 8) == id .. ' ' and string.sub(v, 1, 6) == 'locker' then
    answer = exclusive(key, v, id, ttl)
  end
  -- A replica must not say that a ticket is gone, and refuses to write.
  if answer == 0 then call('HDEL', key .. ':t', '') end
  answers[i] = answer
end
return answers
