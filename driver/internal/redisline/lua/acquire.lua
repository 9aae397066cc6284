-- KEYS: main key, fence key
-- ARGV: id, ttl ms, "channel limit grace blob", and what is asked for: x exclusive
-- or s shared, followed by w if the ticket is to wait in line
-- Answers: the token, when granted; {token, after, flags} (see outlook) when in
-- line; 0 when not granted and not to wait; -1 when the ticket was released
-- before this request came; -2 as 0, when another library keeps no string there.
local key, id = KEYS[1], ARGV[1]
if id == '' then return -1 end -- its caller has given up before it was sent
local time = redis.call('TIME')

-- The last token is kept for all names together: it outlives every line and
-- costs one key. Where it is lost, the clock is ahead of it. Tokens have
-- 16 digits, so that they are in order as strings, too.
local function number()
  local us = time[2]
  local token = time[1] .. (#us == 6 and us or string.sub('00000' .. us, -6))
  local last = redis.call('SET', KEYS[2], token, 'GET')
  if last and last >= token then
    token = string.format('%.0f', last + 1)
    redis.call('SET', KEYS[2], token)
  end
  return token
end

local exclusive = ARGV[4] == 'x' or ARGV[4] == 'xw'
if exclusive and redis.call('EXISTS', key, key .. ':x', key .. ':s', key .. ':d') == 0 then
  local token = number()
  redis.call('SET', key, 'locker ' .. id .. ' ' .. token .. ' ' .. token .. ' ' .. ARGV[3], 'PX', ARGV[2])
  return token
end

local now = time[1] * 1000000 + time[2]
--#include value.lua
--#include line.lua

local D, ttl = key .. ':d', tonumber(ARGV[2])
local chan, limit = string.match(ARGV[3], '^(%S+) (%d+) ')
limit = tonumber(limit)
local waiting = exclusive and X or S

-- held answers for a ticket that holds: its lease begins anew.
local function held(v)
  if holds(v, id) then
    if string.sub(v, 7, 7) == '?' then
      call('SET', key, 'locker ' .. string.sub(v, 8), 'PX', ttl)
    elseif call('PTTL', key) < ttl then
      call('PEXPIRE', key, ttl)
    end
    return string.match(v, '^.......%S+ (%d+) ')
  end
  local token = v == MARK and call('ZSCORE', H, id)
  local last = token and tonumber(call('ZSCORE', E, id) or 0)
  if token and last > now then
    local rec = call('HGET', T, id)
    local till = now + ttl * 1000
    if string.sub(rec, 1, 1) == '?' then
      call('HSET', T, id, string.sub(rec, 2))
    else
      till = math.max(till, last)
    end
    call('ZADD', E, int(till), id)
    mark()
    return int(tonumber(token))
  end
end

local function free(v)
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

-- line answers for a ticket that waits: its process is to look for itself if
-- its ticket is the first.
local function line(token, v)
  vouch(chan, waiting)
  local x, s = call('ZRANGE', X, '0', '0', 'WITHSCORES'), call('ZRANGE', S, '0', '0', 'WITHSCORES')
  local head = (not x[1] or s[1] and tonumber(s[2]) < tonumber(x[2])) and s[1] or x[1]
  local mine = head == id or string.match(call('HGET', T, head) or '', '^%d+ (%S+) ') == chan
  local after, flags = rest(v)
  return {token, after, flags + (mine and 1 or 0)}
end

if call('ZSCORE', D, id) then
  if tonumber(call('ZINCRBY', D, -1, id)) <= 0 then call('ZREM', D, id) end
  return -1
end
local v = value(key)
local token = held(v) or nil
if token then return token end
if #ARGV[4] == 2 and call('ZSCORE', P, chan) and lapsed(chan) then reap() end
local again = call('ZSCORE', waiting, id)
if again then vouch(chan, waiting) end
if not v or v == MARK then
  settle(v)
  v = value(key)
end
if again then return held(v) or line(int(tonumber(again)), v) end
if free(v) then return grant(number()) end
if #ARGV[4] == 1 then
  call('HDEL', T, '') -- a replica must not say that it is held, and refuses to write
  return v == FOREIGN and -2 or 0
end
token = number()
stand(waiting, id, token, int(now) .. ' ' .. ARGV[3])
return line(token, v)
