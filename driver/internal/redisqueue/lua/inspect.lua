-- KEYS: main key
-- Answers: {now, value of the main key or nil, its PTTL, shared holders, waiters}.
-- A shared holder is {id, token, end of the lease, record}; a waiter is {id,
-- token, x|s, record}. Dead tickets are left out.
local key = KEYS[1]
--#include queue.lua

local holders, waiters = {}, {}
local v = value(key)
if v == MARK then
  local h = call('ZRANGE', H, 0, -1, 'WITHSCORES')
  for i = 1, #h, 2 do
    local till = tonumber(call('ZSCORE', E, h[i]) or 0)
    if till > now then
      table.insert(holders, {h[i], int(tonumber(h[i + 1])), int(till), call('HGET', T, h[i]) or ''})
    end
  end
end
for kind, set in pairs({x = X, s = S}) do
  local w = call('ZRANGE', set, 0, -1, 'WITHSCORES')
  for i = 1, #w, 2 do
    local t = ticket(w[i], w[i + 1])
    if t then table.insert(waiters, {t.id, int(t.number), kind, t.rec}) end
  end
end
return {int(now), v, call('PTTL', key), holders, waiters}
