-- Comes before the script of the user. The last argument says how many fences there
-- are; their keys are the last keys, their tokens the arguments before it. Tokens
-- are decimal without leading zeros, and compared as text: a number of Lua is
-- exact up to 2^53 only.
do
  local fences = tonumber(table.remove(ARGV))
  for i = 1, fences do
    local seen = redis.call('GET', KEYS[#KEYS - fences + i])
    local token = ARGV[#ARGV - fences + i]
    if seen and (#seen > #token or #seen == #token and seen > token) then
      return redis.error_reply('LOCKERSTALE ' .. i .. ' ' .. seen)
    end
  end
  for _ = 1, fences do
    redis.call('SET', table.remove(KEYS), table.remove(ARGV))
  end
end
