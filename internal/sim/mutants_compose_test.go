package sim

// Faults of package compose.
func init() {
	mutants = append(mutants,
		mutant{
			name: "compose: All leaves a request that comes to one store late", file: "compose/lease.go",
			old: "if p.unknown { // a request may", new: "if false { // a request may",
		},
		mutant{
			name: "compose: All forgets what became of an earlier request", file: "compose/acquire.go",
			old: "if earlier := m.books[k]; earlier != nil {", new: "if earlier := m.books[k]; earlier != nil && false {",
			unseen: "a store of All that is one itself has to be asked again for a ticket, after a request that comes when that has been released: found once (seed 3425), and not in another run",
		},
		mutant{
			name: "compose: All does not renew a part while it waits for another", file: "compose/acquire.go",
			old: "if i < last {", new: "if false && i < last {",
		},
		mutant{
			name: "compose: the lease of All is that of the first part", file: "compose/acquire.go",
			old: "if g.Asked.Before(all.Asked) {", new: "if false {",
		},
		mutant{
			name: "compose: All does not release a part that was lost elsewhere", file: "compose/acquire.go",
			old: "case lost && a.undo():", new: "case lost:",
		},
		mutant{
			name: "compose: All gives up a wait when a store is away", file: "compose/acquire.go",
			old: "if !a.isQueued() || !driver.IsUnavailable(err) || a.ctx.Err() != nil {", new: "if err != nil {",
		},
		mutant{
			name: "compose: All does not say how a call has ended", file: "compose/acquire.go",
			old: "cause != nil && !errors.Is(err, cause) {", new: "cause != nil && false {",
		},
		mutant{
			name: "compose: Fallback leaves its ticket on the primary", file: "compose/fallback.go",
			old: "\t\tf.orphans.add(r.Hold(0))\n", new: "",
		},
		mutant{
			name: "compose: Fallback lifts the bound for the secondary's answer", file: "compose/fallback.go",
			old: "\t\t\tif !timer.Stop() {\n\t\t\t\treturn\n\t\t\t}\n", new: "\t\t\ttimer.Stop()\n",
		},
		mutant{
			name: "compose: Fallback does not notice that a store goes away while a call waits", file: "compose/fallback.go",
			old: "case queued && away != nil:", new: "case false:",
		},
		mutant{
			name: "compose: Fallback does not hear what the primary answers to its waiters", file: "compose/fallback.go",
			old: "\t\tf.outages[primary].lost()\n", new: "",
		},
	)
}
