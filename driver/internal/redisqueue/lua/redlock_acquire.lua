-- KEYS: main key, fences
-- ARGV: id, number, ttl ms, form, bucket, round, "channel limit ownerlength blob"
-- form is three letters: x exclusive or s shared; w hold or else wait in the queue, j
-- wait in it and do not hold, t hold or else leave nothing; n for a number that was guessed,
-- r for one that is larger than all that a majority has answered, k for one that is
-- kept: the ticket has it on a majority; m for one that holds on a majority, and is
-- to hold here as well.
-- Answers {what, now, n, flags, ids}, where what is
--   1  it holds; with a limit, ids are all shared tickets ahead
--   2  it is queued; n and flags are as outlook has them, and 4 when it may hold
--   3  it is not; flags is 2 when another library keeps no string there, and ids are who is in
--      the way, the same on all nodes that have them: one ticket, and then flags is 1, or the first
--      shared ones ahead, as many as the limit. Of another library's lock there are none
--   0  the number is too small: it has to be above n
--   4  the ticket is known by the number n, and this one was guessed, or is late
--  -1  the ticket was released before this request came
local key, id, number, ttl, form = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local call, D = redis.call, key .. ':rg:' .. id
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local exclusive, mode, origin = string.sub(form, 1, 1) == 'x', string.sub(form, 2, 2), string.sub(form, 3, 3)
local record = ARGV[6] .. ' ' .. time[1] .. string.sub('00000' .. time[2], -6) .. ' ' .. ARGV[7]

-- The fences are the largest numbers that ever held here, for many names
-- together: they outlive every queue and cost one key. Where one is lost, the
-- clock is ahead of it.
local fence = tonumber(call('HGET', KEYS[2], ARGV[5]) or nil)

-- beginning returns a time since when no fence was lost: the clock when it was first
-- asked for. All numbers that have held before, and may be forgotten, are below it.
-- The clock of each request would refuse the numbers of slow clients again and again.
local function beginning()
  local since = tonumber(call('HGET', KEYS[2], '@') or nil)
  if not since then
    since = now
    call('HSET', KEYS[2], '@', string.format('%.0f', now))
  end
  return since
end

-- refused returns the floor when the number is too small. top is the largest
-- that waits: guessed numbers keep the order of arrival by it, and the others were
-- chosen after an answer of a majority, so they do by that.
local function refused(top)
  local floor = math.max(fence or now, top)
  local small
  if origin == 'n' then
    small = number <= floor
  elseif origin == 'm' then
    -- The fence may be another name's. Of this name nobody holds a majority
    -- meanwhile, and whoever holds here is not displaced.
    small = false
  elseif origin == 'r' then
    small = number <= (fence or beginning())
  else
    small = fence and number < fence
  end
  return small and floor
end

-- The three cases of a mutex come first and are complete in themselves: a run that
-- ends there does not pay for the functions of the general rule below. They leave to it
-- what is not as usual: a tombstone, shared waiters, a process that was taken for dead, or is new where others wait.
local X, T, P = key .. ':rx', key .. ':rt', key .. ':rp'
local there = exclusive and mode ~= 'j' and call('EXISTS', key, X, key .. ':rs', D)
if there == 0 then
  local floor = refused(0)
  if floor then return {0, now, floor, 0} end
  if not fence or fence < number then call('HSET', KEYS[2], ARGV[5], ARGV[2]) end
  call('SET', key, 'redlock ' .. id .. ' ' .. ARGV[2] .. ' ' .. record, 'PX', ttl)
  return {1, now, 0, 0}
end
if exclusive and mode == 'w' then
  local v, heads, mine = redis.pcall('GET', key), call('ZRANGE', X, '0', '1'), call('ZSCORE', X, id)
  local head, chan = heads[1], string.match(ARGV[7], '^%S+')
  local late = head == id and tonumber(string.match(call('HGET', T, id) or '', '^%d+') or 0) > tonumber(ARGV[6])
  if not v and head == id and not late and there == 1 and tonumber(mine) == number then -- the first waiter, and nobody holds
    call('ZREM', X, id)
    call('HDEL', T, id)
    if not heads[2] then call('DEL', P, T) end
    if not fence or fence < number then call('HSET', KEYS[2], ARGV[5], ARGV[2]) end
    call('SET', key, 'redlock ' .. id .. ' ' .. ARGV[2] .. ' ' .. record, 'PX', ttl)
    return {1, now, 0, 0}
  end
  local holder = type(v) == 'string' and string.match(v, '^redlock (%S+) %d+ %S+ %d+ %S+ ')
  local last = head and tonumber(call('ZREVRANGE', X, '0', '0', 'WITHSCORES')[2]) or 0
  local till = tonumber(call('ZSCORE', P, chan) or not head and now + 1 or 0)
  if holder and holder ~= id and there == (head and 2 or 1) and not mine and number > last and not refused(last) and till > now then
    call('ZADD', X, ARGV[2], id)
    if not head then call('DEL', T) end -- it may have records of waiters who are all dead
    call('HSET', T, id, record)
    if not head or till < now + LIVENESS * 1000 - 500000 then -- as alive does, but not each time
      call('ZADD', P, string.format('%.0f', now + LIVENESS * 1000), chan)
      for _, k in ipairs({P, X, T}) do call('PEXPIRE', k, 2 * LIVENESS) end
    end
    if head then return {2, now, -1, 0} end
    return {2, now, call('PTTL', key), 1}
  end
end

--#include redlock_queue.lua

local W = exclusive and X or S
local limit = tonumber(string.match(ARGV[7], '^%S+ (%d+) '))

-- drop takes the ticket out, so that it is asked for anew.
local function drop(v)
  if holds(v, id) then
    call('DEL', key)
    v = false
  elseif v == MARK and call('ZREM', H, id) == 1 then
    call('ZREM', E, id)
    v = mark()
  end
  call('ZREM', X, id) call('ZREM', S, id) call('HDEL', T, id)
  return v
end

-- mine returns the state of the ticket here: its number, whether it holds, and the round
-- of the proposal that has made it so.
local function mine(v)
  if holds(v, id) then
    local n, round = string.match(v, '^redlock %S+ (%d+) (%d+) ')
    return tonumber(n), true, tonumber(round)
  end
  local n = v == MARK and call('ZSCORE', H, id)
  local held = n and true
  n = n or call('ZSCORE', W, id)
  return n and tonumber(n), held, tonumber(string.match(call('HGET', T, id) or '', '^%d+') or 0)
end

local function taken()
  return call('ZCOUNT', X, number, number) + call('ZCOUNT', S, number, number) > 0
end

local function hold(v, ahead)
  if call('ZREM', W, id) == 1 then call('HDEL', T, id) end
  tidy()
  if not fence or fence < number then call('HSET', KEYS[2], ARGV[5], ARGV[2]) end
  if exclusive then
    if v then ttl = math.max(ttl, call('PTTL', key)) end
    call('SET', key, 'redlock ' .. id .. ' ' .. ARGV[2] .. ' ' .. record, 'PX', ttl)
  else
    local till = math.max(now + ttl * 1000, tonumber(call('ZSCORE', E, id) or 0))
    call('ZADD', H, ARGV[2], id)
    call('ZADD', E, int(till), id)
    call('HSET', T, id, record)
    mark()
  end
  return {1, now, 0, 0, ahead}
end

-- blocker returns the ticket that is in the way by itself, if one is: an exclusive one or, of an
-- exclusive ticket, the first of all.
local function blocker(v)
  if v and v ~= MARK then return (string.match(v, HOLDER)) end
  if exclusive and v then return call('ZRANGE', H, '0', '0')[1] end
  local t = exclusive and first() or peek(X, 0, number)
  return t and t.id
end

-- crowd returns the first shared tickets ahead, as many as the limit.
local function crowd(v)
  if v and v ~= MARK then return nil end
  local ahead = {}
  local holders = call('ZRANGEBYSCORE', H, '-inf', '(' .. int(number), 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #holders, 2 do table.insert(ahead, {id = holders[i], number = tonumber(holders[i + 1])}) end
  for at = 0, limit - 1 do
    local t = peek(S, at, number)
    if not t then break end
    table.insert(ahead, t)
  end
  table.sort(ahead, function(a, b) return a.number < b.number end)
  local ids = {}
  for i = 1, math.min(limit, #ahead) do ids[i] = ahead[i].id end
  return ids
end

if tonumber(call('GET', D) or -1) >= tonumber(ARGV[6]) then return {-1, now, 0, 0} end
local v = current()
local known, held, round = mine(v)
-- A proposal that was overtaken by a later one of the same ticket changes nothing.
-- The answer says which, so that the next one is later still.
if known and mode ~= 'j' and round > tonumber(ARGV[6]) then return {4, now, known, round} end
if known and known ~= number then
  if origin == 'n' then return {4, now, known, 0} end
  v, known, held = drop(v), nil, false
  reaped = true
end
if not known then
  local x, s = call('ZREVRANGE', X, 0, 0, 'WITHSCORES')[2], call('ZREVRANGE', S, 0, 0, 'WITHSCORES')[2]
  local floor = refused(math.max(tonumber(x or 0), tonumber(s or 0)))
  if not floor and taken() then floor = math.max(fence or now, tonumber(x or 0), tonumber(s or 0)) end
  if floor then
    if reaped then notify(v) end
    return {0, now, floor, 0}
  end
end
local ok, ahead
if held then
  ok, ahead = true, limit > 1 and before(number, math.huge) or {} -- all, also those that were repaired here since
else
  ok, ahead = may(v, exclusive, number, limit)
end
if ok and mode ~= 'j' then
  local answer = hold(v, ahead)
  if reaped then notify(current()) end
  return answer
end
if held then return {1, now, 0, 0} end
if mode == 't' then
  if call('ZREM', W, id) == 1 then call('HDEL', T, id) end
  notify(v)
  if v == FOREIGN then return {3, now, 0, 2} end
  local one = blocker(v)
  return {3, now, 0, one and 1 or 0, one and {one} or crowd(v)}
end
wait(exclusive, id, number, record)
if reaped then notify(v, id) end
local chan = string.match(ARGV[7], '^%S+')
local after, flags = outlook(v, chan)
return {2, now, after, flags + (ok and 4 or 0)}
