-- KEYS: main key
-- ARGV: for each of some exclusive tickets, its id and how many requests for it may still be on their way
-- Answers: for each ticket, 1 when it was there, else 0.
local key = KEYS[1]

--#include queue.lua

local v, answers, waiting, some = value(key), {}, {}, false
for i = 1, #ARGV, 2 do
  local id, found = ARGV[i], 1
  if holds(v, id) then
    call('DEL', key)
    v = false
  else
    waiting[#waiting + 1] = id
    found = call('HDEL', T, id) -- it is there for as long as the ticket waits
  end
  expect(id, tonumber(ARGV[i + 1]))
  answers[#answers + 1] = found
  some = some or found == 1
end
if waiting[1] then call('ZREM', X, unpack(waiting)) end
if some then settle(v) end
return answers
