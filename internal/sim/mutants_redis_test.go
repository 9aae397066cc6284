package sim

func init() {
	const (
		engine  = "driver/internal/redisqueue/"
		scripts = engine + "lua/"
	)
	mutants = append(mutants,
		mutant{
			name: "redis: the keys of those who wait end at different times", file: scripts + "common.lua",
			old: "if left ~= -2 and left < 2 * LIVENESS then call('PEXPIRE', k, 2 * LIVENESS) end", new: "keep(k, LIVENESS)",
		},
		mutant{
			name: "redis: the lock is handed to a ticket behind one that never held", file: "driver/internal/handoff/handoff.go",
			old: "lease = min(w.Queued, w.held.Sub(w.Asked))", new: "lease = w.Queued",
		},
		mutant{
			name: "redis: who is handed the lock relies on it for longer than the ticket is kept", file: "driver/redis/acquire.go",
			old: "Queued: queuedFor}", new: "Queued: queuedFor + 2*time.Second}",
		},
		mutant{
			name: "redis: the lock is handed over though others wait between", file: scripts + "acquire.lua",
			old: "call('ZREVRANGE', X, '0', '0')[1]", new: "call('ZRANGE', X, '0', '0')[1]",
		},
		mutant{
			name: "redis: an Extend overtakes the release that hands the lock over", file: "driver/redis/handoff.go",
			old: "h := d.handed[id]\n", new: "h := d.handed[\"\"]\n",
		},
		mutant{
			name: "redis: of tickets that are released together, those that wait stay", file: scripts + "releases.lua",
			old: "if waiting[1] then call('ZREM', X, unpack(waiting)) end", new: "",
		},
		mutant{
			name: "redis: a ticket that is asked for again together with others gets another number", file: scripts + "acquires.lua",
			old: "token and (all or call('ZSCORE', X, id) == token)", new: "token",
		},
		mutant{
			name: "redis: tickets that are asked for together keep nothing of a release that came before", file: scripts + "acquires.lua",
			old: ", S, S, S, S, D, D, D, D)", new: ")",
		},
		mutant{
			name: "redlock: a node that is reached for the first time is not repaired", file: engine + "listener.go", in: "redlock",
			old: "\t\t\tl.set(true, nil)\n\t\t\tl.back()\n", new: "\t\t\tagain := !l.upSince.IsZero()\n\t\t\tl.set(true, nil)\n\t\t\tif again {\n\t\t\t\tl.back()\n\t\t\t}\n",
		},
		mutant{
			name: "redis: a lock that was handed on twice counts as granted when the later release is answered", file: "driver/redis/handoff.go",
			old: ", before: d.handed[h.ID]}", new: "}",
		},
		mutant{
			name: "redis: a short Extend of a provisional lease shortens it", file: "renewal.go", in: "redis",
			old: "ttl = max(ttl, l.length(ls.clock.now()))", new: "ttl += l.length(ls.clock.now()) * 0",
		},
		mutant{
			name: "redis: a grant that a heartbeat finds does not count", file: "driver/redis/acquire.go",
			old: `case n.token == token, n.token == "":`, new: `case n.token == token:`,
		},
		mutant{
			name: "redis: a release leaves nothing for requests that may still come", file: scripts + "queue.lua",
			old: "if late <= 0 then", new: "if true then",
		},
		mutant{
			name: "redis: of a request that was sent twice, only the last sending counts", file: engine + "call.go", in: "redis",
			old: "return c.Sent() > 1 || err != nil &&", new: "return err != nil &&",
		},
		mutant{
			name: "redis: a heartbeat brings the tickets of a lapsed process back", file: scripts + "common.lua", in: "redis",
			old: "  if lapsed(chan) then\n    reap()\n  else", new: "  if false then\n    reap()\n  else",
		},
		mutant{
			name: "redis: the process of a waiter behind an unconfirmed grant does not poll", file: scripts + "queue.lua",
			old: "if ours(v) then return call('PTTL', key), string.sub(v, 7, 7) == '?', 0 end", new: "if ours(v) then return call('PTTL', key), false, 0 end",
		},
		mutant{
			name: "redis: a release grants nobody in the case of a mutex", file: scripts + "release.lua",
			old: "      call('PUBLISH', chan, string.format('g%d ', left) .. heads[2] .. ' ' .. head)\n", new: "",
		},
		mutant{
			name: "redis: a dead waiter blocks for as long as a lease", file: scripts + "queue.lua",
			old: "since(x), 'PX', ms(x.till))", new: "since(x), 'PX', 60000)",
		},
		mutant{
			name: "redis: a renewal is for whoever holds", file: scripts + "renew.lua",
			old: "elseif v and string.sub(v, 8, #id + 8) == id .. ' ' and string.sub(v, 1, 6) == 'locker' then", new: "elseif v then",
		},
		mutant{
			name: "redis: a grant does not wait for the replicas", file: "driver/redis/wire.go",
			old: "\tc.SetArg(0, c.Ticket(r.ID, true))\n\tc.Durable = d.durable\n", new: "\tc.SetArg(0, c.Ticket(r.ID, true))\n",
		},
		mutant{
			name: "redis: a subscription that was left behind is not renewed", file: "driver/redis/acquire.go",
			old: "d.listener.Renew(begun)", new: "_ = begun",
		},
		mutant{
			name: "redis: who is granted after a long wait does not confirm it first", file: "driver/redis/acquire.go",
			old: "if sure || time.Since(g.Asked) > provisional/2 {", new: "if sure {",
		},
		mutant{
			name: "redis: permits are counted without those who wait for one", file: scripts + "acquire.lua",
			old: "if not peek(S, at) then return true end", new: "if at >= 0 then return true end",
		},
		mutant{
			name: "redisqueue: the answer to an old heartbeat is about a new ticket", file: engine + "heartbeat.go",
			old: "current[i] = ok && !begun.Before(since)", new: "current[i] = ok || since.IsZero()",
			unseen: "the core asks for each ticket under a new ID; only a driver of compose over this one asks again under the same, and none is simulated over Redis",
		},
		mutant{
			name: "redisqueue: nobody asks again when a subscription is back", file: engine + "listener.go", in: "redis",
			old: "\t\t\tl.back()\n", new: "",
		},
		mutant{
			name: "redisqueue: the refusal of a subscription is the answer to a request", file: engine + "errors.go", in: "redis",
			old: "\tif IsReply(why) {\n\t\ttext", new: "\tif IsReply(why) && false {\n\t\ttext",
		},
		mutant{
			name: "redlock: a repair lowers the fence", file: scripts + "redlock_acquire.lua",
			old: "floor, 0} end\n  if not fence or fence < number then call('HSET', KEYS[2], ARGV[5], ARGV[2]) end\n  call('SET'", new: "floor, 0} end\n  call('HSET', KEYS[2], ARGV[5], ARGV[2])\n  call('SET'",
		},
		mutant{
			name: "redlock: half of the nodes are enough", file: "driver/redlock/driver.go",
			old: "quorum: len(clients)/2 + 1,", new: "quorum: len(clients) / 2,",
		},
		mutant{
			name: "redlock: an old number holds where a larger one has held", file: scripts + "redlock_acquire.lua",
			old: "small = fence and number < fence", new: "small = false",
		},
		mutant{
			name: "redlock: a node that has lost its fences takes numbers from before the loss", file: scripts + "redlock_acquire.lua",
			old: "small = number <= (fence or beginning())", new: "small = fence and number <= fence",
		},
		mutant{
			name: "redlock: a release leaves nothing for requests that may still come", file: "driver/redlock/wire.go",
			old: "if u.n.unanswered.Requests(u.id) > 0 {", new: "if false {",
		},
		mutant{
			name: "redlock: a node that does not answer a release is not asked again", file: "driver/redlock/lease.go",
			old: "case time.Now().Add(again).Before(r.until) && !d.life.Closed():", new: "case false:",
		},
		mutant{
			name: "redlock: a node that is back does not get the leases", file: "driver/redlock/lease.go",
			old: "if d.tickets[t.r.ID] != t || left <= 0 {", new: "if true || left <= 0 {",
		},
		mutant{
			name: "redlock: tickets that hold on a few nodes do not give way", file: "driver/redlock/acquire.go",
			old: "\td.yield(w, p)\n", new: "",
		},
		mutant{
			name: "redlock: a try that few nodes grant leaves its ticket there", file: "driver/redlock/acquire.go",
			old: "err = d.giveBack(ctx, t, p)", new: "err = driver.ErrNotAcquired",
		},
		mutant{
			name: "redlock: a lease counts from the answer", file: "driver/redlock/acquire.go",
			old: "return driver.Grant{Token: p.number, Asked: p.asked}", new: "return driver.Grant{Token: p.number, Asked: time.Now()}",
		},
		mutant{
			name: "redlock: a semaphore counts the holders of one node", file: "driver/redlock/proposal.go",
			old: "return !p.limited() || p.countAhead(max(1, p.counted(holds)-p.d.minority()), func(a answer) bool { return a.what == holds }) < p.t.r.Limit", new: "return true",
		},
		mutant{
			name: "redlock: an overtaken proposal changes the ticket", file: scripts + "redlock_acquire.lua",
			old: "if known and mode ~= 'j' and round > tonumber(ARGV[6]) then return {4, now, known, round} end", new: "",
		},
	)
}
