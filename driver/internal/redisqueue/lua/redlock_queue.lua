--#include value.lua

-- The queue of one name on one node of Redlock, by the general rule: exclusive and shared
-- tickets, limits, expired waiters. The scripts that include this file define the main key, key.
--
-- The main key holds the record of the exclusive holder or, while shared tickets
-- hold, MARK. Whoever else uses SET NX on it is kept out by both. It is the
-- truth: without MARK in it nobody holds shared here, whatever else is there.
--
--   X  waiting, exclusive: ticket -> number    H  holding, shared: ticket -> number
--   S  waiting, shared:    ticket -> number    E  holding, shared: ticket -> end of the lease
--   T  ticket -> "round since channel limit ownerlength blob"; '#' -> largest limit that waits
--   P  channel of a waiting process -> until when it is taken for alive
--   D  a tombstone: the last round of a ticket that was released, and whose requests may come yet; it is there for
--      five seconds, and its name ends with the ticket
--
-- The numbers are the clients': every node sorts its queue by them alike. A node
-- only says whether a ticket may hold as far as it knows; a majority decides.
local X, S, H, E, T, P = key .. ':rx', key .. ':rs', key .. ':rh', key .. ':re', key .. ':rt', key .. ':rp'
local MARK = 'redlock *'
local HOLDER = '^redlock (%S+) (%d+) %S+ %d+ (%S+) '
local HEAD = '^%S+ %d+ (%S+) (%d+) '
--#include common.lua

local function holds(v, id) return v and string.sub(v, 1, #id + 9) == 'redlock ' .. id .. ' ' end

-- current returns the value of the main key, after the shared holders whose
-- lease is over have gone.
local function current()
  local v = value(key)
  if v == MARK then
    if expire() then
      reaped = true
      v = mark()
    end
  elseif call('EXISTS', H) == 1 then
    forget()
  end
  return v
end

-- before returns the shared tickets ahead of a number: all that hold, and then those that wait, until there are most of them.
local function before(number, most)
  local ids, at = call('ZRANGEBYSCORE', H, '-inf', '(' .. int(number)), 0
  while #ids < most do
    local t = peek(S, at, number)
    if not t then break end
    table.insert(ids, t.id)
    at = at + 1
  end
  return ids
end

-- may reports whether a ticket could hold here. The second result lists the shared
-- tickets ahead of one with a limit.
local function may(v, exclusive, number, limit)
  if exclusive then
    return not v and not peek(X, 0, number) and not peek(S, 0, number)
  end
  if v and v ~= MARK or peek(X, 0, number) then return false end
  if limit == 0 then return true end
  local ahead = before(number, limit)
  return #ahead < limit, ahead
end

-- hasRoom is may for one of many tickets: it counts those ahead, and does not look at each.
-- Of those that count, notify has removed the dead ones before.
local function hasRoom(v, exclusive, number, limit)
  if exclusive or limit == 0 then return may(v, exclusive, number, limit) end
  if v and v ~= MARK or peek(X, 0, number) then return false end
  local below = '(' .. int(number)
  return call('ZCOUNT', H, '-inf', below) + call('ZCOUNT', S, '-inf', below) < limit
end

-- notify notifies those who may hold now, but not the ticket that is left out.
local function notify(v, out)
  if tidy() or v and v ~= MARK then return end
  local function publish(t)
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
      publish(t)
    elseif most > 0 and ahead + 1 >= most then
      break
    end
  end
  if x and not v and waiting == 0 then publish(x) end
end

local move = notify

-- outlook returns after how many milliseconds the queue may move by itself (-1:
-- never), and 1 when this process is to poll then, 2 when the holder is not one
-- of ours.
local function outlook(v, chan)
  local t = first()
  if not v then
    if t and t.chan ~= chan then return ms(t.till), 1 end -- it was notified, and may have died
    return -1, 0
  end
  local flags = (t and t.chan == chan) and 1 or 0
  if v == MARK then return ms(tonumber(call('ZRANGE', E, 0, 0, 'WITHSCORES')[2])), flags end
  if not ours(v) then flags = flags + 2 end
  return call('PTTL', key), flags
end

-- wait puts a ticket in the queue.
local function wait(exclusive, id, number, rec)
  local set = exclusive and X or S
  local chan = string.match(rec, HEAD)
  if call('ZSCORE', P, chan) and lapsed(chan) then reap() end
  enqueue(set, id, int(number), rec)
  alive(chan, set)
end
