-- KEYS: main key, fence key
-- ARGV: id, ttl ms, "channel limit grace blob", x|s, limit, wait 0|1, liveness ms, channel
-- Answers: the token, when granted; {token, after, flags} (see outlook) when in
-- line; 0 when not granted and not to wait; -1 when the ticket was released
-- before this request came.
local key, id = KEYS[1], ARGV[1]
if id == '' then return -1 end -- a request that its caller has given up was sent again
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The last token is kept for all names together: it outlives every line and
-- costs one key. Where it is lost, the clock is ahead of it.
local function number()
  local last = tonumber(redis.call('GET', KEYS[2]) or 0)
  local token = string.format('%.0f', last < now and now or last + 1)
  redis.call('SET', KEYS[2], token)
  return token
end

if ARGV[4] == 'x' and redis.call('EXISTS', key, key .. ':x', key .. ':s', key .. ':d') == 0 then
  local token = number()
  redis.call('SET', key, 'locker ' .. id .. ' ' .. token .. ' ' .. token .. ' ' .. ARGV[3], 'PX', ARGV[2])
  return token
end

--#include line.lua

local D, ttl, limit, exclusive = key .. ':d', tonumber(ARGV[2]), tonumber(ARGV[5]), ARGV[4] == 'x'
local waiting = exclusive and X or S

-- held answers for a ticket that holds: its lease begins anew.
local function held()
  local v = call('GET', key)
  if holds(v, id) then
    if call('PTTL', key) < ttl then call('PEXPIRE', key, ttl) end
    return string.match(v, '^locker %S+ (%d+) ')
  end
  local token = v == MARK and call('ZSCORE', H, id)
  if token then
    local till = math.max(now + ttl * 1000, tonumber(call('ZSCORE', E, id)))
    call('ZADD', E, int(till), id)
    mark()
    return int(tonumber(token))
  end
end

local function line(token)
  vouch(ARGV[8], ARGV[7])
  return {token, outlook(ARGV[8])}
end

local function free()
  local v = call('GET', key)
  if exclusive then return not v and call('EXISTS', X, S) == 0 end
  return (not v or v == MARK) and call('EXISTS', X) == 0 and
    (limit == 0 or call('ZCARD', H) + call('ZCARD', S) < limit)
end

local function grant(token)
  if exclusive then
    call('SET', key, 'locker ' .. id .. ' ' .. token .. ' ' .. int(now) .. ' ' .. ARGV[3], 'PX', ttl)
    return token
  end
  call('ZADD', H, token, id)
  call('ZADD', E, int(now + ttl * 1000), id)
  call('HSET', T, id, int(now) .. ' ' .. ARGV[3])
  mark()
  return token
end

if call('ZSCORE', D, id) then
  if tonumber(call('ZINCRBY', D, -1, id)) <= 0 then call('ZREM', D, id) end
  return -1
end
local token = held()
if token then return token end
token = call('ZSCORE', waiting, id)
if token then vouch(ARGV[8], ARGV[7]) end
settle()
if token then return held() or line(int(tonumber(token))) end
if free() then return grant(number()) end
if ARGV[6] == '0' then return 0 end
token = number()
call('ZADD', waiting, token, id)
call('HSET', T, id, int(now) .. ' ' .. ARGV[3])
if not exclusive then
  local most = tonumber(call('HGET', T, '#') or -1)
  if most ~= 0 and (limit == 0 or limit > most) then call('HSET', T, '#', limit) end
end
return line(token)
