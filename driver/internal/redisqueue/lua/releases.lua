-- KEYS: main key
-- ARGV: for each of some exclusive tickets, its id and how many requests for it may still be on their way
-- Answers: for each ticket, 1 when it was there, else 0.
local key = KEYS[1]

--#include queue.lua

local v, answers = value(key), {}
for i = 1, #ARGV, 2 do
  local id, found = ARGV[i], 1
  if holds(v, id) then
    call('DEL', key)
    v = false
  else
    found = call('ZREM', X, id)
    call('HDEL', T, id)
  end
  expect(id, tonumber(ARGV[i + 1]) - found)
  answers[#answers + 1] = found
end
settle(v)
return answers
