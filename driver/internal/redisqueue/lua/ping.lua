-- KEYS: main key of a name that nobody uses, fence key (or that of all fences)
-- ARGV: channel
-- Answers: 1, after each command that the other scripts use, when the rights
-- suffice. It leaves nothing: what removes comes before what creates, but for a
-- key that ends by itself. That is the first write: where memory is short, Redis
-- refuses no other.
local call, key = redis.call, KEYS[1]
local X, T = key .. ':x', key .. ':t'
call('SET', key, '', 'PX', 1)
call('DEL', key, X, T)
call('ZREM', X, '')
call('HDEL', T, '')
call('PEXPIRE', key, 1000)
call('PTTL', key)
call('TIME')
call('EXISTS', key)
call('EXISTS', KEYS[2])
call('GET', key)
call('HGET', T, '')
call('HLEN', T)
call('ZSCORE', X, '')
call('ZCARD', X)
call('ZCOUNT', X, '-inf', 'inf')
call('ZRANGE', X, 0, 0)
call('ZREVRANGE', X, 0, 0)
call('ZRANGEBYSCORE', X, '-inf', 'inf')
call('PUBLISH', ARGV[1], '')
for _, create in ipairs({{'HSET', T, '', ''}, {'ZADD', X, 1, ''}}) do
  local answer = redis.pcall(unpack(create))
  call('DEL', key, X, T)
  if type(answer) == 'table' and answer.err then return call(unpack(create)) end -- raises the error
end
return 1
