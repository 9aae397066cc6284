-- The line of one name on one node of Redlock, for the scripts that include this
-- file. They define
--   key  the main key of the name
--   now  the node's time in microseconds
--
-- The main key holds the record of the exclusive holder or, while shared tickets
-- hold, MARK. Whoever else uses SET NX on it is kept out by both. It is the
-- truth: without MARK in it nobody holds shared here, whatever else is there.
--
--   X  waiting, exclusive: ticket -> number    H  holding, shared: ticket -> number
--   S  waiting, shared:    ticket -> number    E  holding, shared: ticket -> end of the lease
--   T  ticket -> "round since channel limit ownerlength blob"; '#' -> largest limit that waits
--   P  channel of a waiting process -> until when it is taken for alive
--   D  tickets that were released before a request for them came
--
-- The numbers are the clients': every node sorts its line by them alike. A node
-- only says whether a ticket may hold as far as it knows; a majority decides.
local X, S, H, E, T, P, D = key .. ':rx', key .. ':rs', key .. ':rh', key .. ':re', key .. ':rt', key .. ':rp', key .. ':rd'
local MARK = 'redlock *'
local LIVENESS = 3000 -- ms without a heartbeat, after which a waiting process is taken for dead
local call = redis.call
local dead = false -- tickets of the dead have left the line: others may hold now

local function int(n) return string.format('%.0f', n) end

local function holds(v, id) return v and string.sub(v, 1, #id + 9) == 'redlock ' .. id .. ' ' end

local function ms(t) return math.max(1, math.ceil((t - now) / 1000)) end

-- keep makes a key live for at least d milliseconds more, so that nothing
-- stays when all who knew of it are dead.
local function keep(k, d)
  local left = call('PTTL', k)
  if left ~= -2 and left < d then call('PEXPIRE', k, d * 2) end
end

-- mark writes the main key for those who hold shared, and returns its value.
local function mark()
  local last = call('ZREVRANGE', E, 0, 0, 'WITHSCORES')
  if not last[1] then
    call('DEL', key)
    return false
  end
  local d = ms(tonumber(last[2]))
  call('SET', key, MARK, 'PX', d)
  keep(H, d) keep(E, d) keep(T, d)
  return MARK
end

-- vouch says that a process lives, which waits in set. All keys of those who
-- wait live for as long as the one in set does, since a line has all or none.
local function vouch(chan, set)
  local new = call('ZADD', P, int(now + LIVENESS * 1000), chan)
  if new == 1 or call('PTTL', set) < LIVENESS then
    for _, k in ipairs({X, S, T, P}) do keep(k, LIVENESS) end
  end
end

local function ticket(id, number)
  local rec = call('HGET', T, id)
  if not rec then return nil end
  local chan, limit = string.match(rec, '^%S+ %d+ (%S+) (%d+) ')
  local till = tonumber(call('ZSCORE', P, chan) or 0)
  if till <= now then return nil end
  return {id = id, number = tonumber(number), rec = rec, chan = chan, limit = tonumber(limit), till = till}
end

-- bury takes the tickets of the dead out of the line before one of them shows
-- life again: others may have seen that its tickets were gone.
local function bury(chan)
  if tonumber(call('ZSCORE', P, chan) or 0) > now then return end
  for _, set in ipairs({X, S}) do
    for _, id in ipairs(call('ZRANGE', set, 0, -1)) do
      if not ticket(id, 0) then
        call('ZREM', set, id)
        call('HDEL', T, id)
        dead = true
      end
    end
  end
end

-- peek returns the live ticket at a place of X or S, if its number is below;
-- dead ones there leave the line.
local function peek(set, at, below)
  while true do
    local m = call('ZRANGE', set, at, at, 'WITHSCORES')
    if not m[1] or below and tonumber(m[2]) >= below then return nil end
    local t = ticket(m[1], m[2])
    if t then return t end
    call('ZREM', set, m[1])
    call('HDEL', T, m[1])
    dead = true
  end
end

-- current returns the value of the main key, after the shared holders whose
-- lease is over have gone.
local function current()
  local v = call('GET', key)
  if v == MARK then
    local over = call('ZRANGEBYSCORE', E, '-inf', int(now))
    for _, id in ipairs(over) do
      call('ZREM', H, id)
      call('ZREM', E, id)
      call('HDEL', T, id)
      dead = true
    end
    if over[1] then v = mark() end
  elseif call('EXISTS', H) == 1 then
    for _, id in ipairs(call('ZRANGE', H, 0, -1)) do call('HDEL', T, id) end
    call('DEL', H, E)
  end
  return v
end

-- may tells whether a ticket could hold here. The second result lists the shared
-- tickets ahead of one with a limit.
local function may(v, exclusive, number, limit)
  if exclusive then
    return not v and not peek(X, 0, number) and not peek(S, 0, number)
  end
  if v and v ~= MARK or peek(X, 0, number) then return false end
  if limit == 0 then return true end
  local ahead = call('ZRANGEBYSCORE', H, '-inf', '(' .. int(number))
  local at = 0
  while #ahead < limit do
    local t = peek(S, at, number)
    if not t then return true, ahead end
    table.insert(ahead, t.id)
    at = at + 1
  end
  return false
end

local function first()
  local x, s = peek(X, 0), peek(S, 0)
  if x and s then return x.number < s.number and x or s end
  return x or s
end

-- announce tells those who may hold now, but not the ticket that is left out.
-- Nothing stays of a line in which nobody waits.
local function announce(v, out)
  if call('EXISTS', X, S) == 0 then
    call('DEL', P)
    if v ~= MARK then call('DEL', T) end
    return
  end
  if v and v ~= MARK then return end
  local function tell(t)
    if t.id ~= out then call('PUBLISH', t.chan, 'g' .. t.id) end
  end
  local x = peek(X, 0)
  local waiting, most = 0, tonumber(call('HGET', T, '#') or 0)
  while true do
    local t = peek(S, waiting, x and x.number)
    if not t then break end
    local ahead = call('ZCOUNT', H, '-inf', '(' .. int(t.number)) + waiting
    waiting = waiting + 1
    if t.limit == 0 or ahead < t.limit then
      tell(t)
    elseif most > 0 and ahead + 1 >= most then
      break
    end
  end
  if x and not v and waiting == 0 then tell(x) end
end

-- outlook returns after how many milliseconds the line may move by itself (-1:
-- never), and 1 when this process is to look then, 2 when the holder is not one
-- of ours.
local function outlook(v, chan)
  local t = first()
  if not v then
    if t and t.chan ~= chan then return ms(t.till), 1 end -- it was told, and may have died
    return -1, 0
  end
  local flags = (t and t.chan == chan) and 1 or 0
  if v == MARK then return ms(tonumber(call('ZRANGE', E, 0, 0, 'WITHSCORES')[2])), flags end
  if string.sub(v, 1, 8) ~= 'redlock ' then flags = flags + 2 end
  return call('PTTL', key), flags
end

-- queue puts a ticket in line.
local function queue(exclusive, id, number, rec)
  local set = exclusive and X or S
  local chan, limit = string.match(rec, '^%S+ %d+ (%S+) (%d+) ')
  bury(chan)
  call('ZADD', set, int(number), id)
  call('HSET', T, id, rec)
  if not exclusive then
    limit = tonumber(limit)
    local most = tonumber(call('HGET', T, '#') or -1)
    if most ~= 0 and (limit == 0 or limit > most) then call('HSET', T, '#', limit) end
  end
  vouch(chan, set)
end
