package sim

func init() {
	mutants = append(mutants,
		mutant{
			name: "dynamodb: a write that was sent twice is taken for one that was refused", file: "driver/dynamodb/store.go",
			old: "case errors.As(err, &changed) && hasVersion(changed.Item, version):", new: "case errors.As(err, &changed) && false:",
		},
		mutant{
			name: "dynamodb: readings are not consistent", file: "driver/dynamodb/store.go",
			old: "ConsistentRead: aws.Bool(true)", new: "ConsistentRead: aws.Bool(false)",
		},
		mutant{
			name: "dynamodb: writes have no condition", file: "driver/dynamodb/store.go",
			old: "return s.put(ctx, in, key, value, keep)", new: "return s.put(ctx, &sdk.PutItemInput{}, key, value, keep)",
		},
		mutant{
			name: "dynamodb: its clock counts from the answer", file: "driver/dynamodb/wire.go",
			old: "c.server, c.at = server, asked", new: "c.server, c.at = server, time.Now()",
			unseen: "a slow clock has items removed earlier, by as much as an answer takes: the margin is longer",
		},
		mutant{
			name: "dynamodb: nothing is subtracted from what its clock may leave out", file: "driver/dynamodb/wire.go",
			old: " + life.Elapsed(c.at, time.Now()) + second + disagree", new: " + life.Elapsed(c.at, time.Now())",
		},
		mutant{
			name: "casqueue: Inspect shows what its process knows", file: "driver/internal/casqueue/inspect.go",
			old: "if err := e.read(ctx, f); err != nil {", new: "if err := ctx.Err(); err != nil {",
		},
		mutant{
			name: "casqueue: a reading from before a write overtakes it", file: "driver/internal/casqueue/writer.go",
			old: "f.putSent, f.notOlderThan = sent, time.Now()", new: "f.putSent = sent",
		},
		mutant{
			name: "casqueue: a reading that was begun before a write is newer than what that has replaced", file: "driver/internal/casqueue/writer.go",
			old: "f.notOlderThan = time.Now() // what was", new: "f.known = f.known // what was",
			unseen: "what was read before is dropped when the write is answered, too: only an older reading beside a write without an answer counts",
		},
		mutant{
			name: "casqueue: a ticket whose write was not answered is taken for none", file: "driver/internal/casqueue/acquire.go",
			old: "none = !c.unsure && !f.unanswered && f.doc.find(r.Name).index(r.ID) < 0", new: "none = f != nil",
		},
		mutant{
			name: "casqueue: who asks again is told that there is no ticket", file: "driver/internal/casqueue/acquire.go",
			old: "none = !c.unsure && !f.unanswered &&", new: "none = !c.unsure &&",
		},
		mutant{
			name: "casqueue: a renewal that is written after one for longer shortens the lease", file: "driver/internal/casqueue/lease.go",
			old: "if has > t.ttl || now.Add(ttl).Before(t.promised) {", new: "if false {",
		},
		mutant{
			name: "casqueue: the store forgets a queue before its holders are dead", file: "driver/internal/casqueue/document.go",
			old: "longest = max(longest, patience(q.Tickets[i].life()))", new: "longest = max(longest, 0*patience(q.Tickets[i].life()))",
		},
		mutant{
			name: "casqueue: a ticket and its heartbeat are silent at different times", file: "driver/internal/casqueue/observe.go",
			old: "return b.since, b.asked\n", new: "return r.seen, b.asked\n",
		},
		mutant{
			name: "casqueue: a heartbeat that is answered too late renews", file: "driver/internal/casqueue/attend.go",
			old: "if !t.fixed && t.renewable(now) && sent.After(t.alive) {", new: "if !t.fixed && !now.IsZero() && sent.After(t.alive) {",
		},
		mutant{
			name: "casqueue: what was seen of a record is said of another one", file: "driver/internal/casqueue/document.go",
			old: "if len(before) > 0 && r.same(&before[0]) {", new: "if len(before) > 0 {",
		},
		mutant{
			name: "casqueue: an observation is taken over though there was a heartbeat since", file: "driver/internal/casqueue/share.go",
			old: "&& o.Heartbeat == e.sign(r)", new: "",
		},
		mutant{
			name: "casqueue: the store forgets the queue of a lock that is held for long", file: "driver/internal/casqueue/lease.go",
			old: "life.Elapsed(f.putSent, now) < forgotten &&", new: "forgotten > 0 &&",
		},
		mutant{
			name: "casqueue: a release trusts what was read before", file: "driver/internal/casqueue/engine.go",
			old: "case !fresh:\n\t\t\treturn false, errStale", new: "case false:\n\t\t\treturn false, errStale",
		},
		mutant{
			name: "casqueue: a release that was not answered and was done is a loss", file: "driver/internal/casqueue/engine.go",
			old: "case c.unsure:\n", new: "case false:\n",
		},
		mutant{
			name: "casqueue: a queue that may be created late is created with a ticket", file: "driver/internal/casqueue/writer.go",
			old: "if e.opts.LatePuts && read == (Version{}) {", new: "if false {", in: "nats",
		},
		mutant{
			name: "casqueue: a try is refused by what was read before", file: "driver/internal/casqueue/acquire.go",
			old: "case !fresh:\n", new: "case false:\n",
		},
		mutant{
			name: "nats: a replica that is behind is believed", file: "driver/nats/store.go",
			old: "case err == nil && found[s.names.barrier()].number >= least:", new: "case err == nil:\n\t\t\t_ = least",
		},
		mutant{
			name: "nats: an entry whose message was lost is taken for none", file: "driver/nats/wire.go",
			old: "case m.Header.Get(jetstream.LastSequenceHeader) != strconv.FormatUint(a.last, 10):", new: "case false:",
		},
		mutant{
			name: "nats: writes have no condition", file: "driver/nats/store.go",
			old: "keep, jetstream.WithExpectLastSequencePerSubject(read.Number))", new: "keep)",
		},
		mutant{
			name: "nats: the clocks of all leaders are one", file: "driver/nats/store.go",
			old: "t.Clock = info.Cluster.Leader", new: "t.Clock = \"n\"",
		},
		mutant{
			name: "nats: nobody hears of notifications after a connection was lost", file: "driver/nats/store.go",
			old: "case <-s.dead:\n\t\t\treturn driver.Unavailable(errDisconnected)\n\t\t}\n\t}\n}", new: "case <-s.dead:\n\t\t\t<-ctx.Done()\n\t\t}\n\t}\n}",
			unseen: "who waits reads the queue each second all the same",
		},
		mutant{
			name: "memcached: a heartbeat that a full server refuses is sent", file: "driver/memcached/store.go",
			old: "return replies[0].failed()\n", new: "return nil\n",
		},
		mutant{
			name: "memcached: the version of another process's write is taken for that of one's own", file: "driver/memcached/store.go",
			old: "if now := replies[commands-1]; bytes.Equal(now.value, value) {", new: "if now := replies[commands-1]; len(now.value) > 0 {",
		},
		mutant{
			name: "dynamodb: an item that an answer leaves out is taken for none", file: "driver/dynamodb/store.go",
			old: "err != nil || len(left) == 0 {", new: "err != nil || len(left) >= 0 {",
		},
		mutant{
			name: "dynamodb: a compressed queue is taken for an empty one", file: "driver/dynamodb/wire.go",
			old: "if !bytes.HasPrefix(value, gzipped) {\n", new: "if bytes.HasPrefix(value, gzipped) {\n\t\treturn nil, nil\n\t}\n\tif true {\n",
		},
	)
}
