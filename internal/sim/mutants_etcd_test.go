package sim

func init() {
	const (
		store = "driver/etcd/store.go"
		queue = "driver/internal/kvqueue/"
	)
	mutants = append(mutants,
		mutant{
			name: "etcd: a put is done though its key is there", file: store,
			old: "cmps := []clientv3.Cmp{createdAt(p.Key, absent), createdAt(s.tombstone(&p.Ticket), absent)}", new: "cmps := []clientv3.Cmp{createdAt(s.tombstone(&p.Ticket), absent)}",
		},
		mutant{
			name: "etcd: a put is done though its ticket was withdrawn", file: store,
			old: "cmps := []clientv3.Cmp{createdAt(p.Key, absent), createdAt(s.tombstone(&p.Ticket), absent)}", new: "cmps := []clientv3.Cmp{createdAt(p.Key, absent)}",
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
			name: "etcd: a deletion does not look at the number", file: store,
			old: "If(createdAt(t.Key, t.Number)).Then(ops...).Commit()", new: "Then(ops...).Commit()",
		},
		mutant{
			name: "etcd: queues are read from any member", file: store,
			old: "queue, clientv3.WithPrefix(), clientv3.WithKeysOnly())\n\tif err != nil {\n\t\treturn kvqueue.Snapshot{}, err",
			new: "queue, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithSerializable())\n\tif err != nil {\n\t\treturn kvqueue.Snapshot{}, err",
		},
		mutant{
			name: "etcd: a lease that was not found counts as kept alive", file: "driver/etcd/keepalive.go",
			old: "case err == nil && resp.TTL <= 0:", new: "case err == nil && resp.TTL < 0:",
			unseen: "each keep-alive of holders is followed by a look for their tickets, and waiters see the deletion of theirs",
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
			name: "kvqueue: nothing keeps the sessions of waiters alive", file: queue + "session.go",
			old: "\tcase s.needed == 0:\n\t\treturn\n\tdefault:", new: "\tcase s.needed >= 0:\n\t\treturn\n\tdefault:",
		},
		mutant{
			name: "kvqueue: a ticket is put on a session of any age", file: queue + "session.go",
			old: "s != nil && !s.sent.Before(since) && life.SuspendedSince(s.sent) <= min(s.ttl/suspendedPart, suspendedMost) {", new: "s != nil {",
		},
		mutant{
			name: "kvqueue: a lease that waited begins with its session", file: queue + "acquire.go",
			old: "if !r.Renewed && t.waited || t.stays > 0 {", new: "if t.stays > 0 {",
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
			name: "kvqueue: a grant does not say how long its session is", file: queue + "acquire.go",
			old: "Asked: t.session.sent, TTL: t.session.ttl}", new: "Asked: t.session.sent}",
		},
		mutant{
			name: "core: a fixed lease relies on the renewal of the lease that it re-enters", file: "leases.go", in: "bank",
			old: "(r.fixed || !renewed) &&", new: "!renewed &&",
		},
	)
}
