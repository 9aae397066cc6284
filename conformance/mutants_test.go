package conformance_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/conformance/internal/mutant"
	"github.com/lockerproject/locker/driver"
)

// A case that no broken driver fails proves nothing. So each case must fail on at
// least one mutant, and each mutant names the cases that must catch it.
var mutants = map[mutant.Bug]string{
	mutant.Permissive: `exclusion/mutex exclusion/mixed fairness/first-come-first-served reentry/any-order reentry/by-owner
		reentry/not-after-loss errors/text options/group history/mutex history/mixed`,
	mutant.TwoHolders:       `exclusion/mutex exclusion/readers-and-writers exclusion/mixed history/mutex`,
	mutant.SharedIgnoresX:   `exclusion/writer-alone exclusion/readers-and-writers exclusion/queue-obeys-rule`,
	mutant.LimitOffByOne:    `exclusion/permits exclusion/permits-all-used exclusion/queue-obeys-rule options/limits`,
	mutant.ReadersExclude:   `exclusion/readers-share fairness/readers-together inspect/queue`,
	mutant.LastInFirstOut:   `fairness/first-come-first-served inspect/long-queue history/mutex`,
	mutant.ReaderPasses:     `fairness/writer-not-overtaken exclusion/queue-obeys-rule`,
	mutant.PermitPasses:     `exclusion/queue-obeys-rule`,
	mutant.TryJumps:         `fairness/writer-not-overtaken`,
	mutant.TryAfterRelease:  `fairness/try-in-hand-off fairness/try-behind-permits`,
	mutant.SameProcess:      `reentry/any-order reentry/by-owner`,
	mutant.OwnerIsTicket:    `reentry/by-owner`,
	mutant.QueuesTwice:      `ownership/acquire-asked-again`,
	mutant.CutsIDs:          `ownership/longest-ids`,
	mutant.RefusedLeavesOne: `exclusion/writer-alone`,
	mutant.RefusedQueued:    `fairness/try-never-queued fairness/try-cut-off`,
	mutant.LateHandOff: `fairness/hand-off-time close/releases loss/break-notifies-holder cancellation/writer-leaves
		cancellation/acquisition-only`,
	mutant.PollsSlowly:      `fairness/hand-off-time`,
	mutant.PollsLater:       `fairness/hand-off-time`,
	mutant.HeardOnce:        `fairness/hand-off-time`,
	mutant.NoSettleOnCancel: `cancellation/writer-leaves`,
	mutant.NeverJoined:      `fairness/joined-called-once`,
	mutant.JoinedTwice:      `fairness/joined-called-once`,
	mutant.JoinedBlocks:     `fairness/joined-may-call`,
	mutant.JoinedIsSilent:   `fairness/joined-may-take-long`,
	mutant.OneReaderAtATime: `fairness/readers-together exclusion/queue-obeys-rule`,
	mutant.FirstWaiterOnly:  `fairness/permits-of-different-limits`,
	mutant.SharedTwice:      `ownership/acquire-asked-again`,
	mutant.TryConflicts:     `fencing/concurrent`,
	mutant.DeadBlock:        `expiry/crashed-waiters`,
	mutant.BrokenBlocks:     `loss/break-waiter`,
	mutant.TryRefusesItself: `ownership/acquire-asked-again`,
	mutant.CutsLimits:       `options/limits`,
	mutant.ReadersPoll:      `fairness/hand-off-time`,
	mutant.JoinedOnTry:      `fairness/joined-called-once`,

	mutant.NeverExpires: `expiry/fixed-lease expiry/short-lease ownership/stale-handle expiry/crashed-holder expiry/crashed-reader
		expiry/extended-lease fencing/after-expiry fencing/after-loss reentry/not-after-loss loss/all-handles-end
		options/lease-lengths`,
	mutant.ExpiresEarly: `expiry/fixed-lease expiry/short-lease expiry/extended-lease reentry/lengthens
		loss/lost-before-next-grant loss/late-grant history/with-cuts`,
	mutant.ExpiresLate:       `expiry/crashed-holder expiry/crashed-reader`,
	mutant.ObservedAlone:     `expiry/short-lived-visitors`,
	mutant.LeaseFromQueueing: `loss/late-grant`,
	mutant.AskedLate:         `expiry/crashed-holder`,
	mutant.AskedLongAgo:      `expiry/short-leases-repeated`,
	mutant.AskedAtTheRepeat:  `ownership/acquire-asked-again-late`,
	mutant.ReadersEarly:      `expiry/fixed-lease expiry/short-lease loss/late-grant`,
	mutant.PermitsEarly:      `expiry/fixed-lease expiry/short-lease`,
	mutant.TriesEarly:        `expiry/fixed-lease expiry/short-lease`,
	mutant.WaitedEarly:       `loss/late-grant`,
	mutant.ReadersRenewed:    `expiry/extended-lease`,
	mutant.BatchReversed:     `expiry/renewed-together`,
	mutant.LongOverflows:     `options/lease-lengths`,
	mutant.LongShortened:     `options/lease-lengths`,
	mutant.LongWraps:         `options/lease-lengths`,
	mutant.RenewNothing:      `expiry/renewed-lease expiry/extended-lease expiry/crashed-extended reentry/lengthens cancellation/acquisition-only loss/short-cut`,
	mutant.RenewShortens:     `ownership/renew-never-shortens expiry/extended-lease`,
	mutant.RenewAddsUp:       `expiry/crashed-after-renewals`,
	mutant.RenewRevives:      `ownership/stale-handle ownership/strangers`,
	mutant.BatchShortens:     `ownership/renew-never-shortens`,
	mutant.BatchRenewsWaiter: `ownership/waiter-cannot-renew`,
	mutant.ReaderShortened:   `expiry/extended-lease`,
	mutant.ReaderWaits:       `ownership/waiter-cannot-renew`,
	mutant.BatchOneTTL:       `ownership/renew-never-shortens`,
	mutant.BatchLongest:      `ownership/renew-never-shortens`,
	mutant.BatchHundred:      `ownership/renew-never-shortens`,
	mutant.RenewSeconds:      `expiry/extended-lease reentry/lengthens`,
	mutant.RenewWraps:        `options/lease-lengths`,
	mutant.WaitedSeconds:     `loss/late-grant`,
	mutant.ADayAtMost:        `options/lease-lengths`,
	mutant.BatchEndsAtLoss:   `ownership/renew-never-shortens`,
	mutant.LapsedRevives:     `ownership/lapsed-not-revived ownership/lapsed-while-cut-off`,
	mutant.LapsedRevivesIf:   `ownership/lapsed-not-revived ownership/lapsed-while-cut-off`,
	mutant.StatesHalf:        `expiry/stated-bounds`,
	mutant.RenewWaiter:       `ownership/waiter-cannot-renew`,
	mutant.RenewAnybody:      `ownership/strangers ownership/stale-handle ownership/stale-reader`,
	mutant.ReleaseNothing: `cancellation/before-acquire cancellation/acquisition-only close/releases
		close/twice inspect/empty reentry/any-order`,
	mutant.ReleaseAnybody: `ownership/strangers ownership/stale-handle ownership/stale-reader ownership/release-asked-again
		ownership/release-delayed`,
	mutant.ReleaseByToken:  `ownership/waiter-released cancellation/answer-lost cancellation/any-moment`,
	mutant.ReleaseHeldOnly: `cancellation/while-waiting cancellation/wait-limit close/unblocks-waiters`,
	mutant.ReleaseSilent:   `ownership/waiter-released`,

	mutant.TokensAlike:        `fencing/after-release fencing/shared fencing/concurrent exclusion/mutex`,
	mutant.TokensPerProcess:   `fencing/after-reconnect fencing/after-release history/mutex`,
	mutant.TokensRestart:      `fencing/after-idle`,
	mutant.TokensBackOnExpiry: `fencing/after-expiry fencing/after-loss`,
	mutant.TokensBackOnBreak:  `fencing/after-break`,
	mutant.TokensBackOnTry:    `fencing/after-tries`,
	mutant.TokensAtGrant:      `fencing/after-waiting expiry/long-waiter`,
	mutant.TokensShared:       `fencing/shared fencing/concurrent`,
	mutant.TokensAtOnce:       `fencing/concurrent`,
	mutant.TokensOnRestart:    `fencing/after-restart`,
	mutant.TokensFromQueue:    `fencing/after-restart`,

	mutant.DeadStay:       `expiry/crashed-waiters expiry/crashed-waiters-leave outage/waiter-queues-again`,
	mutant.PatientStay:    `expiry/crashed-waiters-leave`,
	mutant.DeadReaders:    `expiry/crashed-waiters expiry/crashed-waiters-leave`,
	mutant.DeadOneByOne:   `expiry/crashed-waiters`,
	mutant.WaitersDropped: `expiry/long-waiter`,
	mutant.FailsInOutage:  `outage/restart-while-waiting`,
	mutant.SilentOutage:   `outage/down-while-queued outage/cut-while-queued`,
	mutant.SilentWaits:    `outage/down-while-queued outage/cut-while-queued`,

	mutant.AssumesSuccess: `loss/answers-lost loss/lost-before-next-grant ownership/release-delayed limits/outage-is-not-contention
		limits/down-is-unavailable outage/stall-while-held`,
	mutant.LostIfUnknown: `errors/unknown-is-not-lost errors/return-in-time`,
	mutant.IgnoresContext: `errors/unknown-is-not-lost cancellation/cut-while-asking errors/store-unreachable errors/return-in-time
		outage/stalled outage/close-while-down`,
	mutant.NeverReturns:    `errors/unknown-is-not-lost errors/return-in-time errors/no-ticket-is-true`,
	mutant.NoCause:         `errors/unknown-is-not-lost errors/return-in-time`,
	mutant.WaitUnavailable: `errors/unknown-is-not-lost`,
	mutant.ReturnsLate:     `errors/return-in-time`,
	mutant.SaysNoReason:    `errors/why-not-connected`,
	mutant.MarksNoTicket:   `errors/no-ticket-is-true`,
	mutant.FewConnections:  `fairness/many-waits`,
	mutant.NeverReconnects: `outage/waiter-stays-queued fencing/after-loss outage/down-at-start outage/stalled`,

	mutant.ForgetsRelease:   `removal/unanswered-release removal/cancelled-wait`,
	mutant.SlowContext:      `limits/in-time`,
	mutant.Unmarked:         `limits/down-is-unavailable`,
	mutant.PingLies:         `limits/outage-is-not-contention limits/down-is-unavailable`,
	mutant.CloseTakesHeld:   `min-hold/closed-early`,
	mutant.HoldIgnored:      `min-hold/released-early min-hold/crashed-early`,
	mutant.HoldFromQueueing: `min-hold/closed-early`,
	mutant.HoldOfReaders:    `min-hold/closed-early`,
	mutant.ShortensTooMuch:  `min-hold/shortened min-hold/closed-early`,
	mutant.ShortensNothing:  `min-hold/shortened`,
	mutant.ShortenLengthens: `min-hold/not-lengthened`,
	mutant.ShortensUnknown:  `min-hold/shortened`,
	mutant.ShortensNoReader: `min-hold/shortened`,
	mutant.ShortensWaiter:   `min-hold/not-lengthened`,
	mutant.ShortensAnybody:  `min-hold/not-lengthened`,
	mutant.ShortenGuesses:   `errors/return-in-time`,
	mutant.BreakCause:       `loss/break-notifies-holder`,

	mutant.FoldsCase:    `names/distinct names/any-string`,
	mutant.TrimsBlanks:  `names/distinct names/any-string`,
	mutant.CutsAtSlash:  `names/distinct names/any-string`,
	mutant.CutsAtNUL:    `names/distinct names/any-string`,
	mutant.HashTags:     `names/distinct names/any-string`,
	mutant.CutsNames:    `names/distinct`,
	mutant.RefusesNUL:   `names/distinct names/any-string`,
	mutant.RefusesLong:  `names/any-string names/invalid`,
	mutant.FoldsAccents: `names/distinct`,

	mutant.Unordered:      `inspect/queue inspect/long-queue`,
	mutant.NoNotes:        `inspect/queue options/awkward-texts`,
	mutant.CutsTexts:      `options/awkward-texts`,
	mutant.CutsOfReaders:  `options/awkward-texts`,
	mutant.RenewedNotes:   `inspect/remaining`,
	mutant.GrantedNotes:   `inspect/queue`,
	mutant.RestartedNotes: `outage/restart-while-held`,
	mutant.NoRemaining:    `inspect/remaining`,
	mutant.RemainingStays: `inspect/remaining`,
	mutant.WrongSince:     `inspect/queue`,
	mutant.SinceMoves:     `expiry/renewed-lease`,
	mutant.WaiterSince:    `expiry/long-waiter`,
	mutant.NoneOfReaders:  `inspect/remaining`,
	mutant.ListsTickets:   `inspect/list`,
	mutant.ListsIdle:      `inspect/list`,
	mutant.ListsLapsed:    `ownership/lapsed-not-revived`,
	mutant.ListsExclusive: `inspect/list`,
	mutant.ShowsTen:       `inspect/long-queue`,
	mutant.ShowsHundred:   `inspect/long-queue`,
	mutant.BreakNothing:   `loss/break-notifies-holder loss/break-waiter loss/break-unknown`,
	mutant.BreakAnything:  `loss/break-unknown`,
	mutant.BreakSilent:    `loss/break-notifies-holder`,
	mutant.BreakNotPushed: `loss/break-notifies-holder`,
	mutant.BreakExclusive: `loss/break-unknown`,
	mutant.BreakHundred:   `inspect/long-queue`,
	mutant.BreakCuts:      `loss/break-unknown`,
	mutant.BreakTellsAll:  `loss/break-unknown`,
	mutant.BreakOwnSilent: `loss/break-unknown`,
	mutant.BreakGuesses:   `errors/return-in-time`,

	mutant.CloseHangs:        `close/driver-unblocks`,
	mutant.CloseWaits:        `close/in-time`,
	mutant.SecondCloseErrs:   `close/twice`,
	mutant.WorksClosed:       `close/after`,
	mutant.CloseTakesAll:     `close/others-untouched`,
	mutant.KeysStay:          `leaks/keys`,
	mutant.LapsedKeysStay:    `leaks/keys-of-expired-tickets`,
	mutant.DeadKeysStay:      `leaks/keys-of-expired-tickets`,
	mutant.BreakKeys:         `leaks/keys`,
	mutant.InspectKeys:       `leaks/keys`,
	mutant.RenewKeys:         `leaks/keys`,
	mutant.HoldKeys:          `leaks/keys`,
	mutant.GoroutineStays:    `leaks/goroutines`,
	mutant.WaiterStays:       `leaks/goroutines`,
	mutant.CloseTakesWaiters: `close/others-untouched`,
	mutant.ForgetsWaiters:    `outage/restart-while-waiting`,
	mutant.ListsHundred:      `inspect/list-many`,
	mutant.WholeSeconds:      `expiry/fixed-lease`,
	mutant.ClaimUnsaid:       `loss/whole-lease`,
	mutant.StartsEmpty:       `outage/restart-while-held outage/restart-while-waiting history/with-kills`,
}

// harnessOf returns a complete harness of a store.
func harnessOf(s *mutant.Store) conformance.Harness {
	return conformance.Harness{
		Open: func(context.Context) (driver.Driver, error) { return s.Open(), nil },
		OpenLink: func(context.Context) (driver.Driver, conformance.Link, error) {
			d := s.Open()
			return d, d, nil
		},
		Server: s,
		Keys:   s.Keys,
	}
}

// inBubble runs a case on a store with a bug, in a bubble of testing/synctest.
func inBubble(t *testing.T, c conformance.Case, bug mutant.Bug) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := mutant.New(bug)
		begun := time.Now()
		err = c.Run(t.Context(), harnessOf(s))
		if took := time.Since(begun); took > 5*time.Minute {
			t.Errorf("the case has ended after %v: a call that does not return must not stop the suite", took)
		}
		if bug != mutant.None {
			time.Sleep(2 * time.Hour) // what the bug has left behind ends
		}
	})
	return err
}

// TestNoBug runs all cases on the store that has no bug.
func TestNoBug(t *testing.T) {
	for _, c := range conformance.Cases() {
		t.Run(c.String(), func(t *testing.T) {
			if err := inBubble(t, c, mutant.None); err != nil {
				t.Error(err)
			}
		})
	}
}

// A random case may miss the bug: one run in three finds it. The test asserts that
// the case can find it, so the number only has to be large; the first find ends it.
const tries = 64

func TestMutants(t *testing.T) {
	cases := make(map[string]conformance.Case)
	for _, c := range conformance.Cases() {
		cases[c.String()] = c
	}
	catches := make(map[string]int)
	var table strings.Builder
	for _, bug := range slices.Sorted(maps.Keys(mutants)) {
		fmt.Fprintf(&table, "\n  %-75s %s", bug, strings.Join(strings.Fields(mutants[bug]), " "))
	}
	t.Logf("%d drivers that are broken on purpose, and the cases that notice:%s", len(mutants), table.String())
	for bug, caught := range mutants {
		for _, name := range strings.Fields(caught) {
			c, ok := cases[name]
			if !ok {
				t.Errorf("there is no case %s to catch %q", name, bug)
				continue
			}
			catches[name]++
			t.Run(fmt.Sprintf("%s/%s", bug, name), func(t *testing.T) {
				for range tries {
					if err := inBubble(t, c, bug); err != nil {
						if strings.Contains(err.Error(), "%!") {
							t.Errorf("the text of the failure is not well formed: %v", err)
						}
						t.Logf("caught: %.300v", err)
						return
					}
				}
				t.Errorf("%s does not notice a driver with the bug %q", name, bug)
			})
		}
	}
	for name := range cases {
		if catches[name] == 0 {
			t.Errorf("no mutant shows that %s proves anything", name)
		}
	}
}
