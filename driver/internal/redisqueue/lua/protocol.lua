-- KEYS: the key of the protocol version
-- ARGV: the version that is to be there, where there is none; or nothing
-- Answers: the version that is there then, or an empty string.
local v = redis.call('GET', KEYS[1])
if not v and ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1])
  return ARGV[1]
end
return v or ''
