--#include value.lua

-- The queue of one name, by the general rule: exclusive and shared tickets, limits, dead
-- waiters. The scripts that include this file define the main key, key.
--
-- The main key holds "locker id token since channel limit ownerlength blob" of the
-- exclusive holder or, while shared tickets hold, MARK. Whoever else uses SET NX
-- on it is kept out by both. It is the truth: without MARK in it nobody holds
-- shared, whatever else is there. A holder who has waited and does not know of
-- the grant yet has a provisional lease: "locker?id …", and in T "?since …".
--
--   X  waiting, exclusive: ticket -> token    H  holding, shared: ticket -> token
--   S  waiting, shared:    ticket -> token    E  holding, shared: ticket -> end of the lease
--   T  ticket -> "since channel limit ownerlength blob"; '#' -> largest limit that waits
--   P  channel of a waiting process -> until when it is taken for alive
--   D  tombstones: ticket that was released, and whose requests may come yet -> when the tombstone may go
--
-- All times and tokens are microseconds; they fit a double's 53 bits. These
-- keys are derived from the main key, whose hash slot they share, so that a
-- command need not carry them.
local X, S, H, E, T, P = key .. ':x', key .. ':s', key .. ':h', key .. ':e', key .. ':t', key .. ':p'
local MARK = 'locker *'
local HOLDER = '^locker[ ?](%S+) (%d+) %d+ (%S+) '
local HEAD = '^%??%d+ (%S+) (%d+) '
--#include common.lua

local function current() return value(key) end

local function holds(v, id) return v and string.sub(v, 1, 6) == 'locker' and string.sub(v, 8, #id + 8) == id .. ' ' end

-- expect leaves a tombstone for requests for a ticket that may come after its release.
local function expect(id, late)
  if late <= 0 then return end
  local D = key .. ':d'
  call('ZADD', D, int(now + 5000000), id) -- by then they have come, or are lost
  call('PEXPIRE', D, 5000)
  -- Older programs have numbers of requests there, which are small.
  for _, old in ipairs(call('ZRANGEBYSCORE', D, 1000000, int(now))) do call('ZREM', D, old) end
end

-- notify informs a ticket's process that it is granted, after a first write, which a replica refuses, and for how many
-- milliseconds: the provisional lease lasts for as long as the process is taken
-- for alive. A process that has died holds the queue up for no longer than its
-- waiting would have. How many the server has notified does not matter: the process
-- may listen to a replica, or to another server of a Cluster.
local function notify(t)
  call('PUBLISH', t.chan, 'g' .. int(math.floor((t.till - now) / 1000)) .. ' ' .. int(t.number) .. ' ' .. t.id)
end

-- since is the record of a ticket that holds from now on.
local function since(t)
  return int(now) .. string.match(t.rec, '^%d+( .*)$')
end

-- admit grants the shared tickets before the token below (nil: all) that the
-- rule lets in, and returns how many it does not.
local function admit(below)
  local waiting, most = 0, tonumber(call('HGET', T, '#') or 0)
  while true do
    local t = peek(S, waiting, below)
    if not t then return waiting end
    local ahead = call('ZCOUNT', H, '-inf', '(' .. int(t.number)) + waiting
    if t.limit == 0 or ahead < t.limit then
      call('ZREM', S, t.id)
      notify(t)
      call('ZADD', H, int(t.number), t.id)
      call('ZADD', E, int(t.till), t.id)
      call('HSET', T, t.id, '?' .. since(t))
    else
      waiting = waiting + 1
      if most > 0 and ahead + 1 >= most then return waiting end
    end
  end
end

-- settle grants whoever is to be granted now. v is the value of the main key; false: the
-- caller has removed its holder, and settle deletes the key if nobody is granted.
local function settle(v)
  local alone = call('EXISTS', H, S) == 0 -- with the first exclusive waiter
  if not alone and v ~= MARK then forget() end
  if v and v ~= MARK then return tidy() end -- the last waiter may have left
  if v then expire() end
  local x = peek(X, '0')
  if not alone then admit(x and x.number) end
  if not alone and call('EXISTS', H) == 1 then
    mark()
  elseif x then
    call('ZREM', X, x.id)
    notify(x)
    call('HDEL', T, x.id)
    call('SET', key, 'locker?' .. x.id .. ' ' .. int(x.number) .. ' ' .. since(x), 'PX', ms(x.till))
  else
    call('DEL', key)
  end
  tidy()
end

local move = settle

-- outlook returns after how many milliseconds the queue may move by itself (-1:
-- never), whether the process of every waiter is to poll then, since the holder has not
-- confirmed its grant and may be dead, and 2 when the holder is not one of ours, else 0.
-- The flags in an answer are 1, when this process is to poll then, and that.
local function outlook(v)
  if not v then return -1, false, 0 end
  if v == MARK then
    local e = call('ZRANGE', E, '0', '0', 'WITHSCORES')
    return ms(tonumber(e[2])), string.sub(call('HGET', T, e[1]) or '', 1, 1) == '?', 0
  end
  if ours(v) then return call('PTTL', key), string.sub(v, 7, 7) == '?', 0 end
  return call('PTTL', key), false, 2
end
