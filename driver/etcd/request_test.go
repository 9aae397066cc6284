package etcd

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"
)

func testLanes(t *testing.T) *lanes {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &lanes{base: ctx}
	t.Cleanup(func() {
		cancel()
		s.close()
	})
	return s
}

// A request ends when its caller has gone, after its grace, and not before.
func TestRequestEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testLanes(t)
		for _, grace := range []time.Duration{0, putGrace} {
			for _, after := range []time.Duration{0, time.Millisecond, time.Minute} {
				caller, leave := context.WithCancel(t.Context())
				ctx, l := s.begin(caller, grace)
				time.Sleep(after)
				if ctx.Err() != nil {
					t.Errorf("the request has ended before its caller: %v", ctx.Err())
				}
				leave()
				begun := time.Now()
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				if took := time.Since(begun); took < grace || took > grace+2*laneTick {
					t.Errorf("it took %v, want the grace of %v and two ticks at most", took, grace)
				}
				s.done(l)
				if len(s.free) != 0 {
					t.Error("a lane that has ended is kept")
				}
			}
		}
	})
}

// A caller that goes when its request is over, or whose grace ends then, does not
// end the next request on the same lane.
func TestLaneIsTheNextRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testLanes(t)
		caller, leave := context.WithCancel(t.Context())
		_, l := s.begin(caller, putGrace)
		time.Sleep(time.Second) // watched by now
		leave()
		synctest.Wait()
		s.done(l)
		next, again := s.begin(t.Context(), 0)
		if again != l {
			t.Error("the lane is not used again")
		}
		time.Sleep(time.Minute)
		if next.Err() != nil {
			t.Errorf("the next request has ended: %v", next.Err())
		}
		s.done(again)
		if len(s.free) != 1 || len(s.busy) != 0 {
			t.Errorf("%d lanes are free and %d busy, want one free", len(s.free), len(s.busy))
		}
		time.Sleep(2 * laneTick)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ticking {
			t.Error("it ticks though no request is under way")
		}
	})
}

// A request has the values of its caller, and requires a leader where the client
// knows other members that might have one.
func TestRequestHasItsCallersValues(t *testing.T) {
	s := testLanes(t)
	type key struct{}
	plain := context.WithValue(t.Context(), key{}, "value")
	for name, caller := range map[string]context.Context{
		"plain": plain, "metadata": metadata.AppendToOutgoingContext(plain, "trace", "17"),
	} {
		for _, several := range []bool{false, true} {
			s.several.Store(several)
			ctx, l := s.begin(caller, 0)
			if ctx.Value(key{}) != "value" {
				t.Errorf("%s: the value is %v", name, ctx.Value(key{}))
			}
			md, _ := metadata.FromOutgoingContext(ctx)
			if got := slices.Equal(md.Get("hasleader"), []string{"true"}); got != several {
				t.Errorf("%s, several members: %v: a leader is required: %v", name, several, got)
			}
			if got := md.Get("trace"); name == "metadata" && !slices.Equal(got, []string{"17"}) {
				t.Errorf("%s: the caller's metadata is %v", name, got)
			}
			s.done(l)
		}
	}
}
