-- KEYS: main key
-- ARGV: id, ms
-- Answers: 1 when the ticket holds here: its lease ends that many milliseconds from now, or
-- earlier if it would; else 0.
local key, id, left = KEYS[1], ARGV[1], tonumber(ARGV[2])
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
--#include value.lua
--#include redlock_queue.lua
--#include cut.lua

return cut(current())
