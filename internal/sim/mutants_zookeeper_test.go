package sim

// Faults of driver/zookeeper.
func init() {
	const dir = "driver/zookeeper/"
	mutants = append(mutants,
		mutant{
			name: "zookeeper: an unanswered create counts as refused", file: dir + "acquire.go",
			old: "if err == nil && now != before || err != nil && zkconn.WasSent(err) && !zkconn.Answered(err) {",
			new: "if err == nil && now != before {",
		},
		mutant{
			name: "zookeeper: a lease is as long as the session", file: dir + "internal/zkconn/session.go",
			old: "return timeout - timeout/3 - halfTick", new: "_ = halfTick\n\treturn timeout",
		},
		mutant{
			name: "zookeeper: a lease takes the last ping for sent just now", file: dir + "internal/zkconn/session.go",
			old: "return timeout - timeout/3 - halfTick", new: "return timeout - halfTick",
		},
		mutant{
			name: "zookeeper: a sync confirms a session", file: dir + "internal/zkconn/session.go",
			old: "\t_, err := c.Multi(ctx, &zk.CheckVersionRequest{Path: c.options.Base, Version: -1})\n",
			new: "\tsent, s := time.Now(), c.Session()\n\terr := c.Sync(ctx)\n\tif err == nil && s != nil {\n\t\ts.confirm(sent)\n\t}\n",
		},
		mutant{
			name: "zookeeper: a lease that waited counts from the last request, however old", file: dir + "internal/zkconn/session.go",
			old: "if at := from(); now.Sub(at) > ttl/8 {", new: "if at := from(); now.Sub(at) > 100*ttl {",
		},
		mutant{
			name: "zookeeper: a try trusts a server that is behind", file: dir + "queue.go",
			old: "if err := d.conn.Sync(ctx); err != nil {", new: "if err := ctx.Err(); err != nil {",
		},
		mutant{
			name: "zookeeper: a deposed leader is believed that there is no ticket to break", file: dir + "inspect.go",
			old: "\tif err := d.conn.Confirm(ctx); err != nil {\n\t\treturn err\n\t}\n", new: "",
		},
		mutant{
			name: "zookeeper: a release does not wait for the Acquire of its ticket", file: dir + "lease.go",
			old: "\tif err := d.giveUp(ctx, h); err != nil {\n\t\treturn err\n\t}\n", new: "",
		},
		mutant{
			name: "zookeeper: a try is queued though the queue has changed", file: dir + "store.go",
			old: "version = seen.version", new: "_ = seen.version",
		},
		mutant{
			name: "zookeeper: the end of a waiter counts as the release of a holder", file: dir + "wait.go",
			old: "w.predecessorReleased = ev.Type == zk.EventNodeDataChanged && ev.Path == w.predecessor", new: "w.predecessorReleased = ev.Path == w.predecessor",
		},
		mutant{
			name: "zookeeper: a permit is granted, and its ticket is not marked", file: dir + "wait.go",
			old: "err == nil && v.awaited(i) {", new: "err == nil && v.awaited(i) && false {",
		},
		mutant{
			name: "zookeeper: who has a permit ahead of it waits for the wrong ticket", file: dir + "queue.go",
			old: "e.limit >= t.limit && j >= e.limit {", new: "e.limit >= t.limit {",
		},
		mutant{
			name: "zookeeper: what has changed before a watch on a queue is not read", file: dir + "internal/zkconn/watch.go",
			old: "\tif w.Seen != seen {\n\t\treturn Fired, nil\n\t}\n", new: "",
		},
	)
}
