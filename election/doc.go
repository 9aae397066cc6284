// Package election elects one leader among the processes that campaign under a name,
// on any store, with a [locker.Locker].
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
// There is at most one leader at a time, as far as leases allow. The contexts of a term
// end before anybody else can be elected, earlier by the safety margin of the Locker. The
// function that [Election.Run] calls must return within that margin. The default, one
// hundredth of [WithTTL], is short; [locker.WithSafetyMargin] sets another one.
// [WithOverrun] calls a function if it has not returned in time, for example to end the
// process. When a leader steps down or resigns, or Run's context ends, the next leader is
// elected only after the function has returned, however long that takes: the lease is
// renewed until then.
//
// A candidate that loses its leadership, or whose store is unavailable, campaigns again
// until Run's context ends. It never calls the function again before the last call has
// returned. When the leader's process dies, the next candidate is elected when the lease
// ends, at most a TTL later (a little more on some stores: see the drivers). When the
// leader steps down, the next one is elected at once.
//
// # What it does not promise
//
// A process that is paused for longer than its lease (by a garbage collector, a
// hypervisor, SIGSTOP) does not notice its loss until it continues, and a request that it
// sent before may arrive late. No election can prevent that. Guard the resource that two
// leaders must not change: a resource that has seen the token of a later term refuses
// earlier ones (package fence).
//
// After a break of the leader's lock ([locker.Client.Break]) the next leader is elected
// before the old one notices it.
//
// Run must return before the Locker is closed: Close releases the leadership without
// waiting for the function.
//
// # Observers
//
// [Election.Leader] returns the leader, and [Election.Observe] every change. Observers do
// not poll while there is a leader, and do not block candidates: a leader also holds a
// second lock, the term lock, for which observers wait as readers, so that the store
// notifies them when the term ends. An idle observer costs one waiting ticket, and so does
// an idle candidate (and one small read a second for all that wait in a process). A leader
// costs two leases, which are renewed in one batch with the others of its Locker. An observer
// polls only while there is no leader, and in the rest of a dead leader's lease, at intervals
// that grow from 50 ms to 5 s.
//
// The name of the term lock is the name of the election followed by "#term/" and a number.
//
// # Terms of other libraries
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
//	Proclaim(val)                  none: a note is that of its campaign
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
