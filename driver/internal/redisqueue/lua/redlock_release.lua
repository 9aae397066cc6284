-- KEYS: main key
-- ARGV: id; a round, where the ticket is asked for again: what a later one has done stays; and 1 when a
-- request for this ticket may still be on its way. The last two may be empty.
-- Answers: 1 when the ticket was there, else 0.
local key, id = KEYS[1], ARGV[1]
local call = redis.call
local v = redis.pcall('GET', key)

-- The two cases of a mutex come first and are complete in themselves: nobody waits, or
-- the first waiter, exclusive, lives and is notified that it may hold.
if type(v) == 'string' and ARGV[2] == '' and ARGV[3] == '' and string.sub(v, 1, #id + 9) == 'redlock ' .. id .. ' ' then
  local X = key .. ':rx'
  local there = call('EXISTS', X, key .. ':rs')
  if there == 0 then
    call('DEL', key)
    return 1
  end
  local head = call('ZRANGE', X, '0', '0')[1]
  local chan = string.match(head and there == 1 and call('HGET', key .. ':rt', head) or '', '^%S+ %d+ (%S+) ')
  local till, time = chan and call('ZSCORE', key .. ':rp', chan), call('TIME')
  if till and tonumber(till) > time[1] * 1000000 + time[2] then
    call('DEL', key)
    call('PUBLISH', chan, 'g' .. head)
    return 1
  end
end

--#include redlock_queue.lua

v = current()
local found, last = false, tonumber(ARGV[2]) or 2 ^ 53
local round = holds(v, id) and string.match(v, '^redlock %S+ %d+ (%d+) ') or string.match(call('HGET', T, id) or '', '^%d+')
if tonumber(round or 0) <= last then
  if holds(v, id) then
    call('DEL', key)
    v, found = false, true
  elseif v == MARK and call('ZREM', H, id) == 1 then
    call('ZREM', E, id)
    v, found = mark(), true
  end
  if call('ZREM', X, id) + call('ZREM', S, id) > 0 then found = true end
  call('HDEL', T, id)
end
-- Also when there is nothing: a replica must not say so, and refuses to write.
call('HDEL', T, '')
if ARGV[3] ~= '' then
  local D = key .. ':rg:' .. id
  call('SET', D, int(math.max(last, tonumber(call('GET', D) or 0))), 'PX', 5000) -- by then they have come, or are lost
end
if found or reaped then notify(v) end
return found and 1 or 0
