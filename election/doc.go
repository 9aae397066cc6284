// Package election chooses one leader among the processes that campaign under a
// name, on any store, by a [locker.Locker] alone.
//
//	e, err := election.New(l, "billing", election.WithNote("10.0.0.7:8080"))
//	if err != nil {
//		return err
//	}
//	return e.Run(ctx, func(ctx context.Context, term *election.Term) error {
//		return bill(ctx, term.Token()) // ctx ends with the leadership
//	})
//
// An election is an exclusive lock. A candidate is a ticket in its queue, the
// leader is the holder, a term is the time that it holds. So candidates are
// elected in the order in which they began to campaign, and [Term.Token] is a
// fencing token that grows with every term.
//
// # What it promises
//
// At most one leader at a time, as far as leases allow. The contexts of a term end
// before the store elects anybody else, by the safety margin of the Locker. The
// function that [Election.Run] calls has to return within that margin: the default,
// one hundredth of [WithTTL], is short, and [locker.WithSafetyMargin] sets
// another one. [WithOverrun] calls a function of yours when it has not returned in
// time, to end the process for instance. When a leader steps down, resigns, or is
// asked to stop by the end of Run's context, the next one is elected only after
// the function has returned, however long that takes: the lease is renewed
// until then.
//
// A candidate that loses its leadership, or whose store is away, campaigns again
// until Run's context ends, and never calls the function a second time before
// the first call has returned. When the leader's process dies, the next candidate
// is elected when its lease ends, at most TTL later (on some stores a little more:
// see the drivers). When it steps down, the next one is elected at once.
//
// # What it does not promise
//
// A process that is paused (by a garbage collector, by a hypervisor, by SIGSTOP)
// longer than its lease does not know of it until it goes on, and a request that
// it sent before may arrive late. No election can help that. What must
// not be done by two leaders is guarded where it is done: a resource that has seen
// the token of a later term refuses an earlier one.
//
// Somebody who breaks the leader's lock ([locker.Client.Break]) elects the next
// leader before the first one knows of it.
//
// Run has to return before the Locker is closed: Close gives up the leadership
// without waiting for the function.
//
// # Observers
//
// [Election.Leader] asks who leads, [Election.Observe] follows it. Observers do
// not poll while somebody leads, and are in nobody's way: a leader also holds a
// second lock, the term lock, and an observer waits for that lock as a reader, so
// that the store wakes it when the term ends. An idle observer costs
// a waiting ticket, an idle candidate costs another one, and a leader costs two
// leases (three after [Term.Proclaim]), which are renewed with all others of its
// Locker: many elections on one Locker are cheap. Only while nobody leads, and
// in the rest of a dead leader's lease, does an observer poll, at
// intervals that grow from 50 ms to 5 s.
//
// The names of these locks are the election's followed by "#term/" or "#note/" and
// numbers.
//
// The Locker must not make its locks shared by default ([locker.WithDefaults]).
//
// # In other words
//
//	Curator LeaderLatch            here
//	start, await                   Run, or Campaign
//	hasLeadership                  Leading
//	close                          the end of Run's context, or Term.StepDown
//	isLeader, notLeader listener   the begin and the end of the function
//	getId, getLeader               WithID, Leader
//	getParticipants                Candidates
//	ConnectionState SUSPENDED      nothing to do: the term goes on until its lease ends
//	ConnectionState LOST           the end of the function's context
//
//	Curator LeaderSelector         here
//	takeLeadership                 the function that Run calls
//	return from takeLeadership     the same: the leader steps down
//	autoRequeue                    the default; return ErrResign for the opposite
//	interruptLeadership            Term.StepDown
//	CancelLeadershipException      the end of the function's context
//	requeue, close                 Run again, the end of Run's context
//
//	etcd concurrency.Election      here
//	Session, its TTL               the Locker, WithTTL
//	Campaign(val)                  Campaign, WithNote
//	Proclaim(val)                  Term.Proclaim
//	Resign                         Term.StepDown
//	Leader, ErrElectionNoLeader    Leader, ErrNoLeader
//	Observe                        Observe
//	Rev (of the leader's key)      Term.Token
//	Session.Done                   Term.Done
//	ResumeElection                 none: a process that starts again campaigns again
//
//	Kubernetes leaderelection      here
//	RunOrDie, Run                  Run, which does not die: it campaigns again
//	OnStartedLeading               the function that Run calls
//	OnStoppedLeading               its return; WithOverrun if it does not return
//	OnNewLeader                    Observe
//	IsLeader, GetLeader            Leading, Leader
//	Identity                       WithID
//	LeaseDuration                  WithTTL
//	RenewDeadline                  WithTTL less locker.WithSafetyMargin
//	RetryPeriod                    a third of WithTTL for the leader; others wait, and do not poll
//	ReleaseOnCancel                always, and safe: the function has returned
//	LeaderTransitions              Term.Token grows, though not by one
//	HealthzAdaptor                 locker.Client.Ping, Term.Err
package election
