package sim

// Faults of the engine of stores with sessions, and of driver/consul.
func init() {
	mutants = append(mutants,
		mutant{
			name: "kvqueue: a watch without news is not made anew", file: "driver/internal/kvqueue/watcher.go",
			old: "quiet := time.AfterFunc(recheck, func() { cancel(errNoNews) })", new: "quiet := time.AfterFunc(100*time.Hour, func() { cancel(errNoNews) })",
		},
		mutant{
			name: "kvqueue: a lease that nobody renews counts from before the wait", file: "driver/internal/kvqueue/acquire.go",
			old: "if !r.Renewed && t.waited || t.stays > 0 {", new: "if false {",
		},
		mutant{
			name: "kvqueue: a ticket whose put was not answered is deleted, not withdrawn", file: "driver/internal/kvqueue/release.go",
			old: "unknown := t.state == orphan", new: "unknown := false",
		},
		mutant{
			name: "kvqueue: the session of a put that was not answered takes more tickets", file: "driver/internal/kvqueue/acquire.go",
			old: "\t\te.retire(t.session)\n", new: "",
		},
		mutant{
			name: "kvqueue: an answer that is under way brings back what has gone", file: "driver/internal/kvqueue/view.go",
			old: "e.Number < v.gone[e.Key] || ", new: "",
		},
		mutant{
			name: "kvqueue: a waiter whose own ticket has gone waits on", file: "driver/internal/kvqueue/watcher.go",
			old: "if (t.Number <= s.Complete || !t.since.After(restored)) && !w.view.has(t.Entry) {", new: "if false {",
		},
		mutant{
			name: "kvqueue: renewals look for the same tickets each time", file: "driver/internal/kvqueue/lease.go",
			old: "return cmp.Compare(a.seen, b.seen) })", new: "return int(a.Number) - int(b.Number) })",
		},
		mutant{
			name: "kvqueue: a renewal goes on where that of another batch has ended", file: "driver/internal/kvqueue/lease.go",
			old: "return cmp.Compare(a.seen, b.seen) })", new: "return int(a.Number) - int(b.Number) })\n" + `	last := ts[0]
	for _, t := range e.tickets {
		if t.session == s && t.seen > last.seen {
			last = t
		}
	}
	next := max(0, slices.IndexFunc(ts, func(t *ticket) bool { return t.Number > last.Number }))
	ts = slices.Concat(ts[next:], ts[:next])`,
		},
		mutant{
			name: "consul: the guard of an ended session is set again", file: "driver/consul/try.go",
			old: "missing = append(missing, lockOp(key, p.Session, []byte(\"made by \"+p.ID)))",
			new: "missing = append(missing, op{kvOp{Verb: api.KVSet, Key: key, Value: []byte(\"made by \" + p.ID)}})",
		},
		mutant{
			name: "consul: a leader that was just elected is believed that a session is over", file: "driver/consul/store.go",
			old: "case there != nil:\n\t\t\treturn errNotReady", new: "case there != nil:\n\t\t\treturn kvqueue.ErrSessionOver",
		},
		mutant{
			name: "consul: a late deletion removes another ticket", file: "driver/consul/store.go",
			old: "ops := []op{indexOp(t.Key, version), keyOp(api.KVDelete, t.Key)}", new: "ops := []op{keyOp(api.KVDelete, t.Key)}\n\t\t_ = version",
		},
		mutant{
			name: "consul: a queue is read from a leader that may be deposed", file: "driver/consul/store.go",
			old: "queue, index, err := s.readQueue(s.exact(ctx), name)", new: "queue, index, err := s.readQueue(s.read(ctx), name)",
		},
	)
}
