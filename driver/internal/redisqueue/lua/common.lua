-- What queue.lua and redlock_queue.lua have in common: the sets of tickets, and whose
-- process lives. They include this file, and define before
--   X, S, H, E, T, P  the keys
--   MARK    what the main key holds while shared tickets hold
--   HOLDER  the pattern that finds the ticket, its number and its channel in the value of an exclusive holder
--   HEAD    the pattern that finds the channel and the limit in a record
-- and after
--   current()  returns the value of the main key, without shared holders whose lease is over
--   move(v)    lets in or notifies those who may hold now; v is the value of the main key
-- LIVENESS stands for the number of milliseconds without a heartbeat after which a waiting
-- process is taken for dead: the Go constant Liveness, which is put in its place.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local reaped = false -- expired tickets were removed from the queue: others may hold now

-- ours reports whether the main key has a value of this driver.
local function ours(v) return v == MARK or v and string.match(v, HOLDER) end

local function int(n) return string.format('%.0f', n) end

local function ms(t) return math.max(1, math.ceil((t - now) / 1000)) end

-- keep makes a key live for at least d milliseconds more, and for less than a
-- minute longer, so that nothing stays when all who knew of it are dead.
local function keep(k, d)
  local left = call('PTTL', k)
  if left ~= -2 and left < d then call('PEXPIRE', k, d + math.min(d, 30000)) end
end

-- mark writes the main key for those who hold shared, and returns its value.
local function mark()
  local last = call('ZREVRANGE', E, '0', '0', 'WITHSCORES')
  if not last[1] then
    call('DEL', key)
    return false
  end
  local d = ms(tonumber(last[2]))
  call('SET', key, MARK, 'PX', d)
  keep(H, d) keep(E, d) keep(T, d)
  return MARK
end

-- tidy leaves nothing of a queue in which nobody waits, and reports whether nobody does. T stays for those who hold. If
-- it has more records than they, X and S have ended by themselves, and it is made anew without those of their tickets.
local function tidy()
  if call('EXISTS', X, S) > 0 then return false end
  call('DEL', P)
  if call('EXISTS', H) == 0 then
    call('DEL', T)
    return true
  end
  call('HDEL', T, '#')
  if call('HLEN', T) > call('ZCARD', H) then
    local records = {}
    for _, id in ipairs(call('ZRANGE', H, '0', '-1')) do records[id] = call('HGET', T, id) or nil end
    call('DEL', T)
    for id, rec in pairs(records) do call('HSET', T, id, rec) end
    keep(T, call('PTTL', H))
  end
  return true
end

-- enqueue puts a ticket in a set of waiters.
local function enqueue(set, id, number, rec)
  tidy()
  call('ZADD', set, number, id)
  call('HSET', T, id, rec)
  if set == X then return end
  local _, limit = string.match(rec, HEAD)
  local most = tonumber(call('HGET', T, '#') or -1)
  limit = tonumber(limit)
  if most ~= 0 and (limit == 0 or limit > most) then call('HSET', T, '#', limit) end
end

-- ticket returns what is known of a ticket, unless its process is dead.
local function ticket(id, number)
  local rec = call('HGET', T, id)
  if not rec then return nil end
  local chan, limit = string.match(rec, HEAD)
  if not chan then error('the record of ticket ' .. id .. ' in ' .. T .. ' is none of locker: remove that key') end
  local till = tonumber(call('ZSCORE', P, chan) or 0)
  if till <= now then return nil end
  return {id = id, number = tonumber(number), rec = rec, chan = chan, limit = tonumber(limit), till = till}
end

-- lapsed reports whether a process shows life too late. Others may have seen that
-- its tickets were gone, so that they must not come back: reap first.
local function lapsed(chan) return tonumber(call('ZSCORE', P, chan) or 0) <= now end

-- reap removes dead processes and their tickets, wherever they are in the queue.
local function reap()
  for _, set in ipairs({X, S}) do
    for _, id in ipairs(call('ZRANGE', set, '0', '-1')) do
      if not ticket(id, 0) then
        call('ZREM', set, id)
        call('HDEL', T, id)
        reaped = true
      end
    end
  end
  for _, chan in ipairs(call('ZRANGEBYSCORE', P, '-inf', int(now))) do call('ZREM', P, chan) end
end

-- alive notes that a process lives, which waits in set. Whoever finds that set ends soon
-- makes all keys of those who wait live as long as it then does: a key that has some time left
-- would end before anybody finds again that set ends soon. What dead processes leave in a queue that is never empty is removed
-- when there is more of it than tickets, so that each new process pays for one dead one.
local function alive(chan, set)
  local new = call('ZADD', P, int(now + LIVENESS * 1000), chan)
  if new == 1 and call('ZCOUNT', P, '-inf', int(now)) > call('ZCARD', X) + call('ZCARD', S) then reap() end
  if new == 1 or call('PTTL', set) < LIVENESS then
    for _, k in ipairs({P, X, S, T}) do
      local left = call('PTTL', k)
      if left ~= -2 and left < 2 * LIVENESS then call('PEXPIRE', k, 2 * LIVENESS) end
    end
  end
end

-- peek returns the live ticket at a rank of X or S, if its number is below;
-- it removes dead ones there.
local function peek(set, at, below)
  while true do
    local m = call('ZRANGE', set, at, at, 'WITHSCORES')
    if not m[1] or below and tonumber(m[2]) >= below then return nil end
    local t = ticket(m[1], m[2])
    if t then return t end
    call('ZREM', set, m[1])
    call('HDEL', T, m[1])
    reaped = true
  end
end

-- first is the live ticket at the head of the queue.
local function first()
  local x, s = peek(X, '0'), peek(S, '0')
  if x and s then return x.number < s.number and x or s end
  return x or s
end

-- silent returns after how many milliseconds the process of a ticket is taken for dead, if it has
-- missed a heartbeat: if that ticket is the first, the queue may then move by itself.
local function silent(t)
  return t and t.till < now + LIVENESS * 1000 - 1100000 and ms(t.till)
end

-- expire drops the shared holders whose lease is over, and reports whether there
-- were any.
local function expire()
  local over = call('ZRANGEBYSCORE', E, '-inf', int(now))
  for _, id in ipairs(over) do
    call('ZREM', H, id)
    call('ZREM', E, id)
    call('HDEL', T, id)
  end
  return over[1] ~= nil
end

-- forget drops what is left of shared holders whose mark is gone.
local function forget()
  for _, id in ipairs(call('ZRANGE', H, '0', '-1')) do call('HDEL', T, id) end
  call('DEL', H, E)
end

-- wants returns the number of a ticket that waits, and the set in which it does. arg is x or s, and the ticket.
local function wants(arg)
  local set = string.sub(arg, 1, 1) == 'x' and X or S
  return call('ZSCORE', set, string.sub(arg, 2)), set
end

-- heard notes a heartbeat of a process, for the tickets in ARGV after the first.
local function heard(chan)
  -- A replica must not say that a ticket is gone, and refuses to write. Where memory is
  -- short, Redis refuses only a first write, and of those that remove none.
  call('ZREM', P, '')
  local set
  if lapsed(chan) then
    reap()
  else
    set = X
  end
  for i = 2, #ARGV do
    local number, where = wants(ARGV[i])
    if number then
      set = where
      break
    end
  end
  if set then
    alive(chan, set)
  else
    call('ZREM', P, chan)
  end
end
