-- KEYS: main key
-- ARGV: id, ms
-- Answers: 1 when the ticket holds: its lease ends that many milliseconds from now, or
-- earlier if it would, and the process of the first waiter is notified that it is to poll then; else 0.
local key, id, left = KEYS[1], ARGV[1], tonumber(ARGV[2])
--#include queue.lua

local v = current()
-- A replica must not say that there is none, and refuses to write. Where memory is short,
-- Redis refuses only a first write, and of those that remove none.
call('HDEL', T, '')
local till = v == MARK and tonumber(call('ZSCORE', E, id) or 0) or 0
if holds(v, id) then
  if call('PTTL', key) > left then call('PEXPIRE', key, left) end
elseif till > now then
  if till > now + left * 1000 then
    call('ZADD', E, int(now + left * 1000), id)
    mark()
  end
else
  return 0
end
local t = first()
if t then call('PUBLISH', t.chan, 'n' .. key) end
return 1
