package election_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/postgres"
	_ "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/election"
	"github.com/lockerproject/locker/internal/testbed"
)

// stores are the real stores of these tests.
var stores = map[string]func(testing.TB) *testbed.Server{
	"redis":    testbed.SharedRedis,
	"postgres": testbed.SharedPostgres,
}

// killTTL is the lease of the candidates that are processes.
const killTTL = 4 * time.Second

// childCampaigns runs a candidate in a process of its own.
func childCampaigns() {
	err := campaign(os.Getenv("URL"), os.Getenv("NAME"), os.Getenv("ID"))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func campaign(url, name, id string) error {
	ctx := context.Background()
	l, err := locker.Open(ctx, url)
	if err != nil {
		return err
	}
	e, err := election.New(l, name, election.WithID(id), election.WithTTL(killTTL))
	if err != nil {
		return err
	}
	fmt.Println("campaigns", id)
	return e.Run(ctx, func(ctx context.Context, term *election.Term) error {
		fmt.Println("leads", term.Token())
		<-ctx.Done()
		fmt.Println("ended", context.Cause(ctx))
		return nil
	})
}

func open(t *testing.T, url string, opts ...locker.ClientOption) *locker.Client {
	t.Helper()
	l, err := locker.Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newName() string { return fmt.Sprintf("election-%016x", rand.Uint64()) }

// sighting is what an observer was notified of, and when.
type sighting struct {
	leader locker.Ticket
	at     time.Time
}

// sightings observes an election until the test ends.
func sightings(t *testing.T, e *election.Election) <-chan sighting {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	seen := make(chan sighting, 100)
	var group sync.WaitGroup
	group.Go(func() {
		for leader, err := range e.Observe(ctx) {
			if ctx.Err() == nil {
				if err != nil {
					t.Error(err)
				}
				seen <- sighting{leader, time.Now()}
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return seen
}

// next returns the next sighting of somebody.
func next(t *testing.T, seen <-chan sighting) sighting {
	t.Helper()
	for {
		select {
		case s := <-seen:
			if s.leader.Token != 0 {
				return s
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the observer was notified of nothing for 20 s")
		}
	}
}

// The leader's process is killed: the other one leads when the lease is over, and
// the observer is notified then.
func TestLeaderKilled(t *testing.T) {
	for store, server := range stores {
		t.Run(store, func(t *testing.T) {
			url, name := server(t).URL(), newName()
			e, err := election.New(open(t, url), name)
			if err != nil {
				t.Fatal(err)
			}
			start := func(id string) *testbed.Process {
				p := testbed.Child(t, "candidate", "URL="+url, "NAME="+name, "ID="+id)
				p.WaitLine("campaigns")
				return p
			}
			seen := sightings(t, e)
			begun := time.Now()
			log := func(at time.Time, format string, args ...any) {
				t.Logf("%6.3f s  %s", at.Sub(begun).Seconds(), fmt.Sprintf(format, args...))
			}
			a := start("a")
			first := a.WaitLine("leads ")
			log(time.Now(), "process a (pid %d) leads, token %s", a.Pid(), first)
			s := next(t, seen)
			log(s.at, "the observer sees %s", s.leader.Owner)
			b := start("b")
			both(t, e)
			log(time.Now(), "process b (pid %d) campaigns, as second", b.Pid())
			time.Sleep(killTTL/2 + killTTL/3) // past a renewal
			asked := time.Now()
			leader, err := e.Leader(t.Context())
			if err != nil || leader.Owner != "a" {
				t.Fatalf("the leader is %+v, %v", leader, err)
			}
			over := asked.Add(leader.Remaining) // or later: it may be renewed once more
			a.Kill()
			killed := time.Now() // the last renewal was before
			log(killed, "SIGKILL to process a; the lease is %v", killTTL)
			var second string
			var led time.Time
			_, busy := testbed.Measure(func() {
				second, led = b.WaitLine("leads "), time.Now()
				s = next(t, seen)
			})
			log(led, "process b leads, token %s: %v after the kill", second, led.Sub(killed).Round(time.Millisecond))
			log(s.at, "the observer sees %s", s.leader.Owner)

			if early := over.Sub(led); early > 10*time.Millisecond { // the clocks of stores count milliseconds
				t.Errorf("the next leader came %v before the end of the lease", early)
			}
			if took := led.Sub(killed); took > killTTL+500*time.Millisecond+busy {
				t.Errorf("the next leader came %v after the kill, want what was left of the lease of %v", took, killTTL)
			}
			if late := s.at.Sub(led); late > 500*time.Millisecond+busy || s.leader.Owner != "b" {
				t.Errorf("the observer saw %q %v after the election", s.leader.Owner, late)
			}
			before, _ := strconv.ParseUint(first, 10, 64)
			after, _ := strconv.ParseUint(second, 10, 64)
			if before == 0 || after <= before || s.leader.Token != after || strings.TrimSpace(second) == "" {
				t.Errorf("tokens %s and %s, observed %d", first, second, s.leader.Token)
			}
		})
	}
}

// both waits until two candidates are queued.
func both(t *testing.T, e *election.Election) {
	t.Helper()
	eventually(t, func() error {
		all, err := e.Candidates(t.Context())
		if err != nil || len(all) != 2 {
			return fmt.Errorf("the candidates are %+v, %w", all, err)
		}
		return nil
	})
}

// Terms, notes and observers on real stores.
func TestOnStores(t *testing.T) {
	for store, server := range stores {
		t.Run(store, func(t *testing.T) {
			url, name := server(t).URL(), newName()
			observer, err := election.New(open(t, url), name)
			if err != nil {
				t.Fatal(err)
			}
			seen := sightings(t, observer)
			down := make(chan struct{})
			var last uint64
			lead := func(ctx context.Context, term *election.Term) error {
				if term.Token() <= last {
					t.Errorf("token %d after %d", term.Token(), last)
				}
				last = term.Token()
				select {
				case <-down:
				case <-ctx.Done():
				}
				return nil
			}
			for _, id := range []string{"a", "b"} {
				e, err := election.New(open(t, url), name, election.WithID(id), election.WithNote("note"))
				if err != nil {
					t.Fatal(err)
				}
				running(t, e, lead)
				eventually(t, func() error {
					all, err := observer.Candidates(t.Context())
					if err != nil || len(all) == 0 || all[len(all)-1].Owner != id {
						return fmt.Errorf("the candidates are %+v, %w", all, err)
					}
					return nil
				})
			}
			for _, id := range []string{"a", "b", "a", "b"} {
				begun := time.Now()
				s := next(t, seen)
				if s.leader.Owner != id || s.leader.Note != "note" {
					t.Fatalf("the observer sees %q with %q, want %q", s.leader.Owner, s.leader.Note, id)
				}
				if d := s.at.Sub(begun); d > 6*time.Second {
					t.Errorf("after %v", d)
				}
				if leader, err := observer.Leader(t.Context()); err != nil || leader.Owner != id || leader.Note != "note" {
					t.Errorf("the leader is %+v, %v", leader, err)
				}
				both(t, observer) // the other one campaigns again, before this one does
				down <- struct{}{}
			}
		})
	}
}

// A leader that is cut off from the store ends by its own clock before another one
// is elected, and campaigns again when the store is back.
func TestLeaderCutOff(t *testing.T) {
	for store, server := range stores {
		t.Run(store, func(t *testing.T) {
			const margin, ttl = 2 * time.Second, 6 * time.Second // a busy machine notices the end of a lease late
			srv, name := server(t), newName()
			proxy := srv.Proxy(t)
			started, ended := make(chan time.Time, 10), make(chan time.Time, 10)
			lead := func(ctx context.Context, _ *election.Term) error {
				started <- time.Now()
				<-ctx.Done()
				ended <- time.Now()
				return nil
			}
			cutOff, err := election.New(open(t, proxy.URL(), locker.WithSafetyMargin(margin)), name, election.WithTTL(ttl))
			if err != nil {
				t.Fatal(err)
			}
			running(t, cutOff, lead)
			<-started
			other, err := election.New(open(t, srv.URL()), name, election.WithTTL(ttl))
			if err != nil {
				t.Fatal(err)
			}
			elected := make(chan time.Time, 1)
			stop := running(t, other, func(ctx context.Context, _ *election.Term) error {
				elected <- time.Now()
				return untilEnd(ctx, nil)
			})
			both(t, other)
			proxy.Cut()
			defer proxy.Heal()
			first, second := <-ended, <-elected
			t.Logf("elected %v after the end of the first leader", second.Sub(first).Round(time.Millisecond))
			if ahead := second.Sub(first); ahead < margin/4 {
				t.Errorf("the next leader was elected %v after the end of the first, want about %v", ahead, margin)
			}
			proxy.Heal()
			eventually(t, func() error {
				all, err := other.Candidates(t.Context())
				if err != nil || len(all) != 2 {
					return fmt.Errorf("after the cut the candidates are %+v, %w", all, err)
				}
				return nil
			})
			_ = stop()
			<-started
		})
	}
}
