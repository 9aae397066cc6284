-- KEYS: main key of a name that nobody uses, fence key
-- ARGV: channel
-- Answers: 1, after each command that the other scripts use, when the rights
-- suffice. It leaves nothing.
local call, key = redis.call, KEYS[1]
call('TIME')
call('EXISTS', key)
call('GET', KEYS[2])
call('SET', key, 'locker ping', 'PX', 1000)
call('PTTL', key)
call('PEXPIRE', key, 1000)
call('DEL', key)
call('HSET', key .. ':t', '', '')
call('HGET', key .. ':t', '')
call('HDEL', key .. ':t', '')
call('ZADD', key .. ':x', 1, 'ping')
call('ZINCRBY', key .. ':x', 1, 'ping')
call('ZSCORE', key .. ':x', 'ping')
call('ZCARD', key .. ':x')
call('ZCOUNT', key .. ':x', '-inf', 'inf')
call('ZRANGE', key .. ':x', 0, 0)
call('ZREVRANGE', key .. ':x', 0, 0)
call('ZRANGEBYSCORE', key .. ':x', '-inf', 'inf')
call('ZREM', key .. ':x', 'ping')
call('PUBLISH', ARGV[1], '')
return 1
