package sim

func init() {
	const (
		store = "driver/etcd/store.go"
		queue = "driver/internal/kvqueue/"
	)
	mutants = append(mutants,
		mutant{
			name: "etcd: a put is done though its key is there", file: store,
			old: "cmps := []clientv3.Cmp{is(p.Key, 0), is(s.tombstone(&p.Ticket), 0)}", new: "cmps := []clientv3.Cmp{is(s.tombstone(&p.Ticket), 0)}",
		},
		mutant{
			name: "etcd: a put is done though its ticket was withdrawn", file: store,
			old: "cmps := []clientv3.Cmp{is(p.Key, 0), is(s.tombstone(&p.Ticket), 0)}", new: "cmps := []clientv3.Cmp{is(p.Key, 0)}",
		},
		mutant{
			name: "etcd: an unanswered put counts as refused", file: store,
			old: "\t\treturn kvqueue.Placed{}, outcome(err)", new: "\t\treturn kvqueue.Placed{}, kvqueue.Refused(err)",
		},
		mutant{
			name: "etcd: a put that a full server has done counts as refused", file: "driver/etcd/errors.go",
			old: "\t\terrors.Is(err, rpctypes.ErrTooManyRequests):\n\t\treturn kvqueue.Refused(err)", new: "\t\terrors.Is(err, rpctypes.ErrNoSpace):\n\t\treturn kvqueue.Refused(err)",
		},
		mutant{
			name: "etcd: a withdrawal from a full server deletes nothing", file: store,
			old: "if errors.Is(err, rpctypes.ErrNoSpace) {", new: "if false {",
		},
		mutant{
			name: "etcd: a deletion does not look at the number", file: store,
			old: "If(is(t.Key, t.Number)).Then(clientv3.OpDelete(t.Key))", new: "Then(clientv3.OpDelete(t.Key))",
		},
		mutant{
			name: "etcd: a move that arrives late undoes a later one", file: store,
			old: `from := clientv3.Compare(clientv3.LeaseValue(t.Key), "=", leaseOf(t.Session))`, new: `from := clientv3.Compare(clientv3.LeaseValue(t.Key), "!=", leaseOf("0"))`,
		},
		mutant{
			name: "etcd: queues are read from any member", file: store,
			old: "queue, clientv3.WithPrefix(), clientv3.WithKeysOnly())\n\tif err != nil {\n\t\treturn kvqueue.Snapshot{}, err",
			new: "queue, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithSerializable())\n\tif err != nil {\n\t\treturn kvqueue.Snapshot{}, err",
		},
		mutant{
			name: "etcd: a lease that was not found counts as kept alive", file: store,
			old: "if err == nil && resp.TTL <= 0 {", new: "if err == nil && resp.TTL < 0 {",
		},
		mutant{
			name: "etcd: a permit has no condition on new readers", file: store,
			old: "noneSince(queue+sharedClass, since)}", new: "noneSince(queue+sharedClass, since+1000000)}",
		},
		mutant{
			name: "etcd: a try that would be granted is put without a condition", file: store,
			old: "cmps = append(cmps, free(queue, p.Request, since)...)", new: "_ = since",
		},
		mutant{
			name: "etcd: what has changed before a watch is not read", file: "driver/etcd/watch.go",
			old: "if uint64(revision) <= w.Complete {", new: "if revision > 0 {",
		},
		mutant{
			name: "etcd: a watch that is not opened is waited for", file: "driver/etcd/watch.go",
			old: "late := time.AfterFunc(answerBound, cancel)", new: "late := time.AfterFunc(1000*time.Hour, cancel)",
		},
		mutant{
			name: "etcd: a leader that cannot reach the others is no outage", file: "driver/etcd/errors.go",
			old: "if codeOf(err) == codes.Unknown && strings", new: "if false && strings",
		},
		mutant{
			name: "etcd: a server that does not answer the first request is no outage", file: store,
			old: "err = driver.Unavailable(s.silence()) // it says why", new: "err = s.silence()",
		},
		mutant{
			name: "etcd: after an outage the client connects when gRPC likes", file: "driver/etcd/errors.go",
			old: "\t\tconn.ResetConnectBackoff()\n", new: "",
		},
		mutant{
			name: "kvqueue: the session of an orphan takes more tickets", file: queue + "acquire.go",
			old: "\t\te.retire(t.session)\n\t\tif t.released", new: "\t\tif t.released",
		},
		mutant{
			name: "kvqueue: a put that is answered after the end of its session is a ticket", file: queue + "acquire.go",
			old: "if err == nil && t.session.over {", new: "if false {",
		},
		mutant{
			name: "kvqueue: nothing keeps the sessions of waiters alive", file: queue + "session.go",
			old: "\tcase s.waiting == 0:\n\t\treturn\n\tdefault:", new: "\tcase s.waiting >= 0:\n\t\treturn\n\tdefault:",
		},
		mutant{
			name: "kvqueue: a ticket is put on a session of any age", file: queue + "session.go",
			old: "if c.current == nil || c.current.sent.Before(since) {", new: "if c.current == nil {",
		},
		mutant{
			name: "kvqueue: a lease that waited begins with its session", file: queue + "acquire.go",
			old: "if !r.Renewed && t.waited || t.stays > 0 {", new: "if t.stays > 0 {",
		},
		mutant{
			name: "kvqueue: a minimum hold that nobody was told of outlives Close", file: queue + "acquire.go",
			old: "\t\tt.stays = 0 // no caller gets the grant, so Close does not keep the ticket\n", new: "",
		},
		mutant{
			name: "kvqueue: a ticket that was granted before its wait has not joined", file: queue + "acquire.go",
			old: "t.state == waiting, t.state == waiting || t.waited", new: "t.state == waiting, t.state == waiting",
		},
		mutant{
			name: "kvqueue: what has gone together is noted one by one", file: queue + "losses.go",
			old: "\t\t\tq.removed(l.Gone)\n", new: "\t\t\tq.removed(l.Gone)\n\t\t\tq.settle()\n",
		},
		mutant{
			name: "kvqueue: a watch without news is trusted for ever", file: queue + "watcher.go",
			old: "quiet := time.AfterFunc(recheck, func()", new: "quiet := time.AfterFunc(1000*recheck, func()",
		},
		mutant{
			name: "kvqueue: a view takes back what has gone", file: queue + "view.go",
			old: "if e.Number <= v.complete || e.Number < v.gone[e.Key] {", new: "if e.Number < v.gone[e.Key] {",
		},
		mutant{
			name: "kvqueue: a waiter whose entry has gone is not lost", file: queue + "watcher.go",
			old: "\t\t\tw.q.e.lose(t, errDeleted)\n", new: "",
		},
		mutant{
			name: "kvqueue: a release of a waiter leaves its entry", file: queue + "release.go",
			old: "\tif err != nil && !errors.Is(err, driver.ErrLost) {\n\t\treturn err\n\t}\n\te.mu.Lock()\n\tdefer e.unlock()\n\te.forget(t)",
			new: "\te.mu.Lock()\n\tdefer e.unlock()\n\te.forget(t)",
		},
		mutant{
			name: "kvqueue: a renewal is counted for the session before the move", file: queue + "lease.go",
			old: "case stale: // another", new: "case stale && false: // another",
			unseen: "two renewals of one ticket have to meet, and the old session has to end",
		},
		mutant{
			name: "kvqueue: a move takes its ticket off the new session's count twice", file: queue + "lease.go",
			old: "\tif counted && (!begins || t.state != held) {\n", new: "\tif t.state != held || !begins {\n",
		},
		mutant{
			name: "kvqueue: an extension does not move the ticket", file: queue + "lease.go",
			old: "if err != nil || !short {", new: "if err != nil || short || !short {",
		},
		mutant{
			name: "kvqueue: a lost keep-alive of a grant is waited for", file: queue + "session.go",
			old: "try, end := context.WithTimeout(ctx, tryBound)\n\t\ttried", new: "try, end := context.WithTimeout(ctx, 1000*tryBound)\n\t\ttried",
		},
		mutant{
			name: "kvqueue: a late grant asks the store for a caller that has gone", file: queue + "session.go",
			old: "\tif ctx.Err() != nil {\n\t\treturn e.stopped(ctx)\n\t}\n\tvar last error", new: "\tvar last error",
		},
		mutant{
			name: "core: a fixed lease relies on the renewal of the lease that it re-enters", file: "leases.go",
			old: "(r.fixed || !renewed) &&", new: "!renewed &&",
		},
	)
}
