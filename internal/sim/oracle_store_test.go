package sim

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// An observation of a ticket from before its last heartbeat is found, and a true one is not.
func TestObservationIsTrue(t *testing.T) {
	const document = `{"v":1,"q":[{"n":"a","t":[{"i":"1","k":7,"e":1%s}]}]}`
	for at, want := range map[time.Duration]int{2 * time.Second: 0, 1500 * time.Millisecond: 1, 500 * time.Millisecond: 1} {
		synctest.Test(t, func(*testing.T) {
			w := &world{begun: time.Now(), used: make(map[int64]bool)}
			s := newSigns(w)
			s.note("locker:q:a", fmt.Appendf(nil, document, ""), func(string) time.Time { return w.begun })
			time.Sleep(2 * time.Second)
			s.note("locker:h:p", []byte("p-1/34s"), func(string) time.Time { return w.begun })
			time.Sleep(time.Second)
			told := fmt.Appendf(nil, document, fmt.Sprintf(`,"b":{"c":"x","t":%d,"h":"p-1"}`, at))
			s.note("locker:q:a", told, func(string) time.Time { return w.begun })
			s.note("locker:q:a", told, func(string) time.Time { return w.begun }) // with another change
			if len(w.broken) != want {
				t.Errorf("observed at %v: %v", at, w.broken)
			}
		})
	}
}
