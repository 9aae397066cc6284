-- KEYS: main keys
-- ARGV: id and ttl ms for each
-- Answers: for each, 1 when the lease now lasts for ttl at least, 0 when the
-- ticket does not hold here.
--#include value.lua
local answers = {}
for i, key in ipairs(KEYS) do
  local id, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local v = value(key)
  answers[i] = 0
  if v and string.sub(v, 1, #id + 9) == 'redlock ' .. id .. ' ' then
    if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
    answers[i] = 1
  elseif v == 'redlock *' then
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local E = key .. ':re'
    local till = tonumber(redis.call('ZSCORE', E, id) or 0)
    if till > now then
      redis.call('HDEL', key .. ':rt', '') -- where memory is short, Redis refuses a first write that may need more
      redis.call('ZADD', E, string.format('%.0f', math.max(till, now + ttl * 1000)), id)
      for _, k in ipairs({key, key .. ':rh', E, key .. ':rt'}) do
        if redis.call('PTTL', k) < ttl then redis.call('PEXPIRE', k, ttl) end
      end
      answers[i] = 1
    end
  end
  -- A replica must not say that a ticket is gone, and refuses to write.
  if answers[i] == 0 then redis.call('HDEL', key .. ':rt', '') end
end
return answers
