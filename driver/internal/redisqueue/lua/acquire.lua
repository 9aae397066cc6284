-- KEYS: main key, fence key
-- ARGV: id, ttl ms, "channel limit ownerlength blob", and what is asked for: x exclusive
-- or s shared, followed by w if the ticket is to wait in the queue
-- Answers: the token, when granted; {token, after, flags} (see outlook) when
-- queued, with the ID of the ticket directly before it if that waits and all are exclusive; 0 when not granted and not to wait; -1 when the ticket was released
-- before this request came; -2 as 0, when another library keeps no string there.
local key, id, record, want = KEYS[1], ARGV[1], ARGV[3], ARGV[4]
if id == '' then return -1 end -- its caller has given up before it was sent
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = time[1] .. string.sub('00000' .. time[2], -6) -- now; '%.0f' takes longer than a command

-- The last token is kept for all names together: it outlives every queue and
-- costs one key. Where it is lost, the clock is ahead of it.
local function number()
  local token = stamp
  local last = tonumber(call('SET', KEYS[2], token, 'GET') or 0)
  if last >= now then
    token = string.format('%.0f', last + 1)
    call('SET', KEYS[2], token)
  end
  return token
end

-- The two cases of a mutex come first and are complete in themselves: a run that
-- ends there does not pay for the functions of the general rule below. They leave to it
-- what is not as usual: tombstones, shared waiters, a process that was taken for dead, or is new where others wait.
local exclusive = want == 'x' or want == 'xw'
local X, S, D, T, P = key .. ':x', key .. ':s', key .. ':d', key .. ':t', key .. ':p'
-- EXISTS counts a key as often as it is named, so there tells like a bit mask what exists: the
-- main key is 1, X 2; with S or D it is 4 or more.
local there = exclusive and call('EXISTS', key, X, X, S, S, S, S, D, D, D, D)
if there == 0 then
  local token = number()
  call('SET', key, 'locker ' .. id .. ' ' .. token .. ' ' .. token .. ' ' .. record, 'PX', ARGV[2])
  return token
end
if want == 'xw' then
  local v, head, chan = redis.pcall('GET', key), there == 3, string.match(record, '^%S+')
  local holder = type(v) == 'string' and string.match(v, '^locker[ ?](%S+) %d+ %d+ %S+ ')
  local till = tonumber(call('ZSCORE', P, chan) or not head and now + 1 or 0)
  if holder and holder ~= id and till > now and (head or there == 1) then
    local token, before = number(), head and call('ZREVRANGE', X, '0', '0')[1]
    if call('ZADD', X, 'NX', token, id) == 1 then -- else it is asked for again
      if not head then call('DEL', T) end -- it may have records of waiters who are all dead
      call('HSET', T, id, stamp .. ' ' .. record)
      if not head or till < now + LIVENESS * 1000 - 500000 then -- as alive does, but not each time
        call('ZADD', P, string.format('%.0f', now + LIVENESS * 1000), chan)
        for _, k in ipairs({P, X, T}) do call('PEXPIRE', k, 2 * LIVENESS) end
      end
      if head then return {token, -1, 0, before} end
      return {token, call('PTTL', key), 1}
    end
  end
end

--#include queue.lua

local D, ttl = key .. ':d', tonumber(ARGV[2])
local chan, limit = string.match(record, '^(%S+) (%d+) ')
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
  if v and v ~= MARK or call('EXISTS', X) == 1 then return false end
  if limit == 0 or call('ZCARD', H) + call('ZCARD', S) < limit then return true end
  if call('ZCOUNT', P, '-inf', int(now)) == 0 then return false end -- nobody in the queue is dead
  for at = 0, limit - call('ZCARD', H) - 1 do
    if not peek(S, at) then return true end -- fewer that live than the limit: the dead do not count
  end
  return false
end

local function grant(token)
  if exclusive then
    call('SET', key, 'locker ' .. id .. ' ' .. token .. ' ' .. int(now) .. ' ' .. record, 'PX', ttl)
    return token
  end
  call('ZADD', H, token, id)
  call('ZADD', E, int(now + ttl * 1000), id)
  call('HSET', T, id, int(now) .. ' ' .. record)
  mark()
  return token
end

-- queued answers for a ticket that waits: its process is to poll if
-- its ticket is the first.
local function queued(token, v)
  alive(chan, waiting)
  local x, s = call('ZRANGE', X, '0', '0', 'WITHSCORES'), call('ZRANGE', S, '0', '0', 'WITHSCORES')
  local head = (not x[1] or s[1] and tonumber(s[2]) < tonumber(x[2])) and s[1] or x[1]
  local mine = head == id or string.match(call('HGET', T, head) or '', '^%d+ (%S+) ') == chan
  local after, poll, foreign = outlook(v)
  return {token, after, foreign + ((poll or mine) and 1 or 0)}
end

if call('ZSCORE', D, id) then return -1 end
local v = value(key)
local token = held(v) or nil
if token then return token end
if #want == 2 and call('ZSCORE', P, chan) and lapsed(chan) then reap() end
local again = call('ZSCORE', waiting, id)
if again then alive(chan, waiting) end
if not v or v == MARK then
  settle(v)
  v = value(key)
end
if again then return held(v) or queued(int(tonumber(again)), v) end
if free(v) then return grant(number()) end
if #want == 1 then
  call('HDEL', T, '') -- a replica must not say that it is held, and refuses to write
  return v == FOREIGN and -2 or 0
end
token = number()
enqueue(waiting, id, token, int(now) .. ' ' .. record)
return queued(token, v)
