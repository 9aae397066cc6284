package sim

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A message that is late until others have written comes then, once, and its fault is over.
func TestLateUntilWritten(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		w := &world{begun: time.Now(), used: make(map[int64]bool)}
		p := &path{w: w, process: "p"}
		var came atomic.Int64
		rnd := newStream(1, "late")
		w.fault("hold", "p", time.Now().Add(time.Minute))
		p.atOrWritten(time.Now().Add(time.Minute), &once{kind: "hold", lasts: time.Minute, writes: 2}, "hold", func() { came.Add(1) })
		w.wrote(rnd)
		time.Sleep(time.Second)
		if came.Load() != 0 {
			t.Error("it came after one write")
		}
		w.wrote(rnd)
		time.Sleep(time.Second)
		if disturbed := w.faulty("p", time.Now(), time.Now().Add(time.Minute)); came.Load() != 1 || disturbed > 0 {
			t.Errorf("it came %d times after two writes, and its fault lasts for another %v", came.Load(), disturbed)
		}
		time.Sleep(time.Minute)
		if came.Load() != 1 {
			t.Errorf("it came %d times", came.Load())
		}
	})
}
