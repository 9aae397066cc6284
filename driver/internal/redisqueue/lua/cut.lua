-- For shorten.lua and redlock_shorten.lua, after the queue that they include: cut makes the
-- lease of the ticket end earlier, and notifies the process of the first waiter, which is to
-- poll then.
local function cut(v)
  -- A replica must not say that there is none, and refuses to write. Where memory is short,
  -- Redis refuses only a first write, and of those that remove none.
  call('HDEL', T, '')
  local till = v == MARK and tonumber(call('ZSCORE', E, id) or 0) or 0
  if holds(v, id) then
    if call('PTTL', key) > left then call('PEXPIRE', key, left) end
  elseif till > now then
    if till > now + left * 1000 then
      call('ZADD', E, int(now + left * 1000), id)
      mark()
    end
  else
    return 0
  end
  local t = first()
  if t then call('PUBLISH', t.chan, 'n' .. key) end
  return 1
end
