package sim

// Faults of package locker. Some are looked for in the bank alone: the client of Redis bounds its requests itself, and each lease ends
// there when it is over; or a plan has the shape, or an oracle the knowledge, that the fault needs.
func init() {
	mutants = append(mutants,
		mutant{
			name: "core: a re-entry that fails keeps its handle", file: "reentry.go",
			old: "if !complete {", new: "if !complete && false {",
		},
		mutant{
			name: "core: who has waited for another call of its owner has no bound for the answer", file: "reentry.go", in: "bank",
			old: "\t\t\ta.expectAnswer()\n", new: "",
		},
		mutant{
			name: "core: the time of an observer counts as the store's", file: "reentry.go",
			old: "\t\t\ta.setQueued(true) // the driver knows nothing of this call\n\t\t\ta.notifyWaiting()\n", new: "\t\t\ta.notifyWaiting()\n\t\t\ta.setQueued(true) // the driver knows nothing of this call\n",
		},
		mutant{
			name: "core: a try waits for another call of its owner", file: "reentry.go",
			old: "\t\t\tif a.try {\n\t\t\t\treturn ErrNotAcquired\n\t\t\t}\n", new: "",
		},
		mutant{
			name: "core: a try has a wait limit", file: "acquisition.go",
			old: "case !a.try:\n\t\ta.wait", new: "default:\n\t\ta.wait",
		},
		mutant{
			name: "core: the renewal of a late grant has no bound", file: "acquisition.go",
			old: "context.WithTimeoutCause(a, c.answerTimeout, noAnswer(c.answerTimeout))", new: "context.WithCancel(a)",
		},
		mutant{
			name: "core: a waiter between two tickets is lost", file: "acquisition.go",
			old: "if errors.Is(err, driver.ErrLost) {\n\t\tif err = errors.New", new: "if errors.Is(err, driver.ErrLost) && false {\n\t\tif err = errors.New",
		},
		mutant{
			name: "core: a loss that is reported before the grant does not count", file: "leases.go",
			old: "if e, ok := ls.early[l.hold.ID]; ok {", new: "if e, ok := ls.early[l.hold.ID]; ok && false {",
		},
		mutant{
			name: "core: a grant that is over when it comes is given to the caller", file: "leases.go",
			old: "if !now.Before(l.validUntil) {\n\t\treturn lostEarly", new: "if false {\n\t\treturn lostEarly",
		},
		mutant{
			name: "core: the ticket of a lease that is over is not removed", file: "leases.go", in: "bank",
			old: "\tls.removals.add(removal{hold: l.hold, heapNode: heapNode{due: due}, holdUntil: l.minHoldEnd()})\n", new: "",
		},
		mutant{
			name: "core: a late request is not looked for", file: "removal.go",
			old: "if r.checks > 0 && !gone && !rm.closing {", new: "if r.checks > 0 && !gone && false {",
		},
		mutant{
			name: "core: an acquisition that has panicked leaves its ticket", file: "acquisition.go",
			old: "\t\t\t\ta.c.leases.undoPanicked(a.req.Hold(0))\n", new: "",
		},
		mutant{
			name: "core: an acquisition that has panicked has no last event", file: "acquisition.go",
			old: "\t\t\ta.failed(errPanicked)\n", new: "",
		},
		mutant{
			name: "core: Close ends a minimum hold", file: "removal.go",
			old: "if left := r.holdUntil.Sub(rm.clock.now()); left > 0 {", new: "if left := r.holdUntil.Sub(rm.clock.now()); left > 0 && false {",
		},
		mutant{
			name: "core: a renewal that hangs has the rest of the lease", file: "renewal.go", in: "bank",
			old: "bound = min(bound, left, max(left/3, 50*time.Millisecond))", new: "bound = min(bound, left)",
		},
		mutant{
			name: "core: a lease that is due sooner does not wake the goroutine", file: "renewal.go",
			old: "if l.due.Before(ls.wakeAt) {\n\t\tsignal(ls.wake)", new: "if false {\n\t\tsignal(ls.wake)",
		},
		mutant{
			name: "core: a limit that passes before the ticket is queued is ErrNotAcquired", file: "call.go",
			old: "case waitOver && c.isQueued():", new: "case waitOver:",
		},
		mutant{
			name: "core: a silent store is not noticed while calls wait", file: "outage.go", in: "bank",
			old: "away := c.askStore()", new: "var away error",
		},
		mutant{
			name: "core: the driver gets the cause of a caller's context", file: "call.go",
			old: "context.WithCancelCause(withoutCause(c.parent))", new: "context.WithCancelCause(c.parent)",
		},
		mutant{
			name: "core: a release whose first request has done it is a loss", file: "removal.go",
			old: "case unanswered: // the request before has removed it\n\t\treturn true, nil\n", new: "",
		},
		mutant{
			name: "core: a release ends with its caller's context", file: "removal.go",
			old: "c.ctx, c.cancel = context.WithDeadline(context.WithoutCancel(c.parent), c.until)", new: "c.ctx, c.cancel = context.WithDeadline(c.parent, c.until)",
		},
		mutant{
			name: "core: Do waits for a slow release", file: "do.go",
			old: "waitForRelease(doWait,", new: "waitForRelease(5*time.Second,",
		},
		mutant{
			name: "core: AcquireAll leaves what it had when it fails", file: "group.go",
			old: "\t\t\tgroup.giveUp(ctx)\n", new: "",
		},
		mutant{
			name: "core: a lease that was extended by far is not renewed", file: "lease.go", in: "bank",
			old: "max(min(length/3, valid/2), valid-ttl+ttl/3)", new: "max(length/3, length-ttl+ttl/3)",
		},
	)
}
