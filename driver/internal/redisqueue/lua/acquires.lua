-- KEYS: main key, fence key
-- ARGV: for each of some tickets of one process, what acquire.lua is given; all are exclusive and wait
-- Answers: for each ticket, what acquire.lua answers, or nil if it has to be asked for alone. This script has the usual
-- cases only: nobody is there, or the tickets are queued behind exclusive ones.
local key, fence, n = KEYS[1], KEYS[2], #ARGV / 4
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = time[1] .. string.sub('00000' .. time[2], -6) -- now; '%.0f' takes longer than a command
local X, S, D, T, P = key .. ':x', key .. ':s', key .. ':d', key .. ':t', key .. ':p'

local answers, tokens = {}, {}
for i = 1, n do answers[i] = false end

-- As in acquire.lua: the main key is 1, X 2; with S or D it is 4 or more.
local there = call('EXISTS', key, X, X, S, S, S, S, D, D, D, D)
local v, chan = redis.pcall('GET', key), string.match(ARGV[3], '^%S+')
local holder = type(v) == 'string' and string.match(v, '^locker[ ?](%S+) %d+ %d+ %S+ ')
local till = tonumber(call('ZSCORE', P, chan) or there ~= 3 and now + 1 or 0)
if there > 0 and not (holder and (there == 1 or there == 3) and till > now) then return answers end

-- Where memory is short, or the fence key is no number, acquire.lua answers for each ticket.
local last = tonumber(call('GET', fence) or 0)
local next = last and math.max(now, last + 1)
if not last or redis.pcall('SET', fence, string.format('%.0f', next + n - 1)).err then return answers end
local added = {}
for i = 1, n do
  local id, token = ARGV[4 * i - 3], string.format('%.0f', next + (i - 1))
  if id == '' then
    answers[i] = -1
  elseif not holder then
    call('SET', key, 'locker ' .. id .. ' ' .. token .. ' ' .. stamp .. ' ' .. ARGV[4 * i - 1], 'PX', ARGV[4 * i - 2])
    answers[i], holder = token, id
  elseif id ~= holder then
    tokens[i] = token
    added[#added + 1], added[#added + 2] = token, id
  end
end
if not added[1] then return answers end

local before = there == 3 and call('ZREVRANGE', X, '0', '0')[1]
local all = 2 * call('ZADD', X, 'NX', unpack(added)) == #added
local records = {}
for i = 1, n do
  local id, token = ARGV[4 * i - 3], tokens[i]
  if token and (all or call('ZSCORE', X, id) == token) then -- else it is asked for again
    answers[i] = before and {token, -1, 0, before} or {token, call('PTTL', key), 1}
    records[#records + 1], records[#records + 2] = id, stamp .. ' ' .. ARGV[4 * i - 1]
    before = id
  end
end
if there ~= 3 then call('DEL', T) end -- it may have records of waiters who are all dead
if records[1] then call('HSET', T, unpack(records)) end
if there ~= 3 or till < now + LIVENESS * 1000 - 500000 then -- as alive does, but not each time
  call('ZADD', P, string.format('%.0f', now + LIVENESS * 1000), chan)
  for _, k in ipairs({P, X, T}) do call('PEXPIRE', k, 2 * LIVENESS) end
end
return answers
