-- The line of one name, for the scripts that include this file. They define
--   key  the main key of the name
--   now  the server's time in microseconds
--
-- The main key holds "locker id token since channel limit grace blob" of the
-- exclusive holder or, while shared tickets hold, MARK. Whoever else uses SET NX
-- on it is kept out by both. It is the truth: without MARK in it nobody holds
-- shared, whatever else is there. A holder who has waited and does not know of
-- the grant yet has only a claim: "locker?id …", and in T "?since …".
--
--   X  waiting, exclusive: ticket -> token    H  holding, shared: ticket -> token
--   S  waiting, shared:    ticket -> token    E  holding, shared: ticket -> end of the lease
--   T  ticket -> "since channel limit grace blob"; '#' -> largest limit that waits
--   P  channel of a waiting process -> until when it is taken for alive
--
-- All times and tokens are microseconds; they fit a double's 53 bits. These
-- keys are derived from the main key, whose hash slot they share, so that a
-- command need not carry them.
local X, S, H, E, T, P = key .. ':x', key .. ':s', key .. ':h', key .. ':e', key .. ':t', key .. ':p'
local MARK = 'locker *'
local LIVENESS = 3000 -- ms without a heartbeat, after which a waiting process is taken for dead
local call = redis.call

local function int(n) return string.format('%.0f', n) end

local function ours(v) return v and string.sub(v, 1, 6) == 'locker' end

local function holds(v, id) return ours(v) and string.sub(v, 8, #id + 8) == id .. ' ' end

local function ms(t) return math.max(1, math.ceil((t - now) / 1000)) end

-- keep makes a key live for at least d milliseconds more, so that nothing
-- stays when all who knew of it are dead.
local function keep(k, d)
  local left = call('PTTL', k)
  if left ~= -2 and left < d then call('PEXPIRE', k, d * 2) end
end

-- mark writes the main key for those who hold shared.
local function mark()
  local last = call('ZREVRANGE', E, '0', '0', 'WITHSCORES')
  local d = ms(tonumber(last[2]))
  call('SET', key, MARK, 'PX', d)
  keep(H, d) keep(E, d) keep(T, d)
end

-- vouch says that a process lives, which waits in set. All keys of those who
-- wait live for as long as the one in set does, since a line has all or none.
local function vouch(chan, set)
  local new = call('ZADD', P, int(now + LIVENESS * 1000), chan)
  if new == 1 or call('PTTL', set) < LIVENESS then
    for _, k in ipairs({X, S, T, P}) do keep(k, LIVENESS) end
  end
end

local function ticket(id, token)
  local rec = call('HGET', T, id)
  if not rec then return nil end
  local rest, chan, limit, grace = string.match(rec, '^%d+ ((%S+) (%d+) (%d+) .*)$')
  local till = tonumber(call('ZSCORE', P, chan) or 0)
  if till <= now then return nil end
  return {id = id, token = tonumber(token), rest = rest, chan = chan,
    limit = tonumber(limit), grace = tonumber(grace) * 1000, till = till}
end

-- peek returns the live ticket at a place of X or S, if it is before the token
-- below; dead ones there leave the line.
local function peek(set, at, below)
  while true do
    local m = call('ZRANGE', set, at, at, 'WITHSCORES')
    if not m[1] or below and tonumber(m[2]) > below then return nil end
    local t = ticket(m[1], m[2])
    if t then return t end
    call('ZREM', set, m[1])
    call('HDEL', T, m[1])
  end
end

-- doubt shortens the life of the processes that do not listen: they have died,
-- or are connecting again just now. All at once, so that however many have
-- died delay the line by one grace, after which the others are to look. grace
-- is 0 where this server does not know all who listen.
local function doubt(t)
  t.till = math.min(t.till, now + t.grace)
  local look = 'n' .. int(t.grace / 1000) .. ' ' .. key
  for _, chan in ipairs(call('ZRANGE', P, '0', '-1')) do
    if call('PUBLISH', chan, look) == 0 and tonumber(call('ZSCORE', P, chan)) > t.till then
      call('ZADD', P, int(t.till), chan)
    end
  end
end

-- summon tells a ticket's process that it is granted, and for how many
-- milliseconds: the claim that it has to confirm stands for as long as the
-- process is taken for alive. A process that has died holds the line for no
-- longer than its waiting would have.
local function summon(t)
  local notice = 'g' .. int((t.till - now) / 1000) .. ' ' .. t.id
  if call('PUBLISH', t.chan, notice) == 0 and t.grace > 0 then doubt(t) end
end

-- forget drops what is left of shared holders whose mark is gone.
local function forget()
  for _, id in ipairs(call('ZRANGE', H, '0', '-1')) do call('HDEL', T, id) end
  call('DEL', H, E)
end

local function expire()
  for _, id in ipairs(call('ZRANGEBYSCORE', E, '-inf', int(now))) do
    call('ZREM', H, id)
    call('ZREM', E, id)
    call('HDEL', T, id)
  end
end

-- admit grants the shared tickets before the token below (nil: all) that the
-- rule lets in, and returns how many it does not.
local function admit(below)
  local waiting, most = 0, tonumber(call('HGET', T, '#') or 0)
  while true do
    local t = peek(S, waiting, below)
    if not t then return waiting end
    local ahead = call('ZCOUNT', H, '-inf', '(' .. int(t.token)) + waiting
    if t.limit == 0 or ahead < t.limit then
      summon(t)
      call('ZREM', S, t.id)
      call('ZADD', H, int(t.token), t.id)
      call('ZADD', E, int(t.till), t.id)
      call('HSET', T, t.id, '?' .. int(now) .. ' ' .. t.rest)
    else
      waiting = waiting + 1
      if most > 0 and ahead + 1 >= most then return waiting end
    end
  end
end

-- tidy leaves nothing of a line in which nobody waits.
local function tidy()
  if call('EXISTS', X, S) == 0 then
    call('DEL', P)
    if call('EXISTS', H) == 0 then call('DEL', T) end
  end
end

-- settle grants whoever is to be granted now. v is the value of the main key,
-- or false when it is to go, or gone.
local function settle(v)
  local alone = call('EXISTS', H, S) == 0 -- with the first exclusive waiter
  if not alone and v ~= MARK then forget() end
  if v and v ~= MARK then return end
  if v then expire() end
  local x = peek(X, '0')
  if not alone then admit(x and x.token) end
  if not alone and call('EXISTS', H) == 1 then
    mark()
  elseif x then
    summon(x)
    call('ZREM', X, x.id)
    call('HDEL', T, x.id)
    call('SET', key, 'locker?' .. x.id .. ' ' .. int(x.token) .. ' ' .. int(now) .. ' ' .. x.rest, 'PX', ms(x.till))
  else
    call('DEL', key)
  end
  tidy()
end

-- rest returns after how many milliseconds the line may move by itself (-1:
-- never), and 2 when the holder is not one of ours, else 0.
local function rest(v)
  if not v then return -1, 0 end
  if v == MARK then return ms(tonumber(call('ZRANGE', E, '0', '0', 'WITHSCORES')[2])), 0 end
  return call('PTTL', key), ours(v) and 0 or 2
end
