-- KEYS: main key
-- Answers: {now, value of the main key or nil, its PTTL, shared holders, waiters}.
-- A shared holder is {id, number, end of the lease, record}; a waiter is {id,
-- number, x|s, record}. Dead tickets are left out.
local key = KEYS[1]
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
--#include value.lua
--#include redlock_queue.lua
--#include view.lua
