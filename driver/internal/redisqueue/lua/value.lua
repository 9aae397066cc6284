-- FOREIGN stands for the value of a main key that is not a string: what another
-- library keeps there, such as the hash of a lock of Redisson.
local FOREIGN = '-'

-- value returns what the main key holds, or false.
local function value(key)
  local v = redis.pcall('GET', key)
  if type(v) ~= 'table' then return v end
  if string.find(v.err, 'WRONGTYPE', 1, true) then return FOREIGN end
  return redis.call('GET', key) -- raises the error
end
