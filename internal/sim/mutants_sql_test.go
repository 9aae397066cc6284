package sim

// Faults of the engine of SQL databases, and of driver/postgres, driver/mysql and driver/sqlite over it: most are faults that a driver of an SQL database has had.
func init() {
	const engine = "driver/internal/sqlqueue/"
	mutants = append(mutants,
		mutant{
			name: "sqlqueue: a late request takes its ticket after the release", file: engine + "acquire.go",
			old: "return r.micros + (time.Since(r.at) + left).Microseconds(), left", new: "return r.micros + time.Hour.Microseconds(), left",
		},
		mutant{
			name: "sqlqueue: a release is confirmed while a request for the ticket may still arrive", file: engine + "lease.go",
			old: "\tcase pending:", new: "\tcase pending && false:",
		},
		mutant{
			name: "sqlqueue: a wait that was lost says that there is no ticket while one may still arrive", file: engine + "acquire.go",
			old: "saysGone(err) && r.pending(after)", new: "r.pending(after) && false",
		},
		mutant{
			name: "sqlqueue: an unanswered request for a ticket is none", file: engine + "acquire.go",
			old: "; !unreleased {", new: "; unreleased || !unreleased {",
		},
		mutant{
			name: "sqlqueue: the time of a request for a ticket counts from before the wait for a connection", file: engine + "acquire.go",
			old: "\t\t\ta, err := e.store.Take(ctx, w.process, r, func() int64 {\n\t\t\t\tuntil, left := e.clock.deadline(ctx)\n",
			new: "\t\t\tuntil, left := e.clock.deadline(ctx)\n\t\t\ta, err := e.store.Take(ctx, w.process, r, func() int64 {\n",
		},
		mutant{
			name: "sqlqueue: a provisional lease counts from its grant", file: engine + "book.go",
			old: "until = h.sent.Add(min(w.ttl, b.liveness))", new: "until = time.Now().Add(min(w.ttl, b.liveness))",
		},
		mutant{
			name: "sqlqueue: a provisional lease is claimed for the whole TTL", file: engine + "acquire.go",
			old: "\t\tif provisional < r.TTL {\n\t\t\tg.Claim = provisional\n\t\t}\n", new: "",
		},
		mutant{
			name: "sqlqueue: a grant with an unknown heartbeat counts from now", file: engine + "book.go",
			old: "until := time.Time{}  ", new: "until := time.Now().Add(min(w.ttl, b.liveness))  ",
		},
		mutant{
			name: "sqlqueue: those who were queued before their process was registered do not learn that it has expired", file: engine + "process.go",
			old: "\tif err == nil && !alive { // an earlier try has registered it, and it has expired; others may have queued\n\t\te.book.expired(process)", new: "\tif err == nil && !alive {\n\t\te.book.mu.Lock()\n\t\te.book.nextID()\n\t\te.book.mu.Unlock()",
		},
		mutant{
			name: "sqlqueue: a process that has expired goes on under its ID", file: engine + "process.go",
			old: "\tb.nextID()\n\tfor _, w := range b.byID {", new: "\tfor _, w := range b.byID {",
		},
		mutant{
			name: "sqlqueue: nothing is compared when notices begin to arrive", file: engine + "notice.go",
			old: "\tin.Missed()\n\tin.e.book.setReceiving(true)", new: "\tin.e.book.setReceiving(true)",
		},
		mutant{
			name: "sqlqueue: a process without notices does not poll", file: engine + "attend.go",
			old: "return !b.receiving && len(b.byID) > 0 && b.registered", new: "return false",
		},
		mutant{
			name: "sqlqueue: a heartbeat that failed is not repeated soon", file: engine + "attend.go",
			old: "if soon := time.Now().Add(min(t.e.heartbeatEvery()/4, longestPoll)); soon.Before(t.next) {", new: "if soon := time.Now().Add(min(t.e.heartbeatEvery()/4, longestPoll)); soon.IsZero() {",
		},
		mutant{
			name: "sqlqueue: nobody sweeps", file: engine + "sweep.go",
			old: "for range sweepTries {", new: "for range 0 {",
		},
		mutant{
			name: "sqlqueue: a queue that is due is not moved on", file: engine + "attend.go",
			old: "\tif due.In < 0 {", new: "\tif due.In < -time.Hour {",
		},
		mutant{
			name: "postgres: a statement that the server has undone may have been done", file: "driver/postgres/errors.go",
			old: "\tif refused(err) {\n\t\tc |= sqlqueue.Undone\n\t}\n", new: "",
		},
		mutant{
			name: "postgres: a broken connection counts as a refusal", file: "driver/postgres/errors.go",
			old: "\treturn pgconn.SafeToRetry(err) || isConnect\n", new: "\treturn err != nil\n",
		},
		mutant{
			name: "mysql: tokens are not raised when a server has started", file: "driver/mysql/clock.go",
			old: "is.raised != is.start || before", new: "before",
		},
		mutant{
			name: "mysql: a procedure that was ended was not executed", file: "driver/mysql/procedures.go",
			old: "case isOneOf(err, errInterrupted, errTimeout):", new: "case isOneOf(err, errNull):",
		},
		mutant{
			name: "mysql: a broken connection counts as a refusal", file: "driver/mysql/errors.go",
			old: "code(err) != 0 && !ends ||", new: "code(err) != 0 || ends ||",
		},
		mutant{
			name: "mysql: a renewal that changes nothing finds no lease", file: "driver/mysql/queue.go",
			old: "err != nil || n == int64(len(held)) {\n\t\t\treturn err", new: "err != nil || n == 0 {\n\t\t\theld = held[:n]\n\t\t\treturn err",
		},
		mutant{
			name: "mysql: a refused try behind a lease that is over counts", file: "driver/mysql/queue.go",
			old: "case key > 0 && !wait:", new: "case !wait:",
		},
		mutant{
			name: "sqlite: a lease counts from before its transaction began", file: "driver/sqlite/store.go",
			old: "t.begun, t.now = true, t.s.clock()", new: "t.begun = true",
		},
		mutant{
			name: "sqlite: what has expired is not removed", file: "driver/sqlite/wire.go",
			old: "if err == nil && soonest <= t.now {", new: "if err == nil && soonest <= t.now && false {",
		},
		mutant{
			name: "sqlite: a provisional lease lasts for its TTL", file: "driver/sqlite/wire.go",
			old: "min(t.now+min(tk.ttl, mostTime), tk.expires)", new: "t.now+min(tk.ttl, mostTime)",
		},
		mutant{
			name: "sqlite: a request that was not answered was not sent", file: "driver/sqlite/queue.go",
			old: "\ta.Sent = sent\n\treturn a, err", new: "\tif a.Sent = sent; err != nil {\n\t\ta.Sent = time.Time{}\n\t}\n\treturn a, err",
		},
		mutant{
			name: "sqlite: a transaction that has failed is not undone", file: "driver/sqlite/store.go",
			old: "_ = t.exec(\"ROLLBACK\")", new: "_ = t.begun",
		},
		mutant{
			name: "sqlite: a file that is locked is an error at once", file: "driver/sqlite/store.go",
			old: "if !isBusy(err) {", new: "if !isBusy(err) || err != nil {",
		},
		mutant{
			name: "sqlite: a release passes nothing on", file: "driver/sqlite/queue.go",
			old: "err = cmp.Or(t.exec(sqlDelete, tk.Token), t.settle(name))", new: "err = t.exec(sqlDelete, tk.Token)",
		},
		mutant{
			name: "sqlite: a grant to a ticket of the process that releases is not in the answer", file: "driver/sqlite/wire.go",
			old: "t.grants = append(t.grants, g)", new: "t.grants = t.grants[:0]",
		},
		mutant{
			name: "sqlite: a grant is not notified", file: "driver/sqlite/wire.go",
			old: "t.notify(tk.process, sqlqueue.GrantText(g))", new: "_ = g",
		},
	)
}
