package driver_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/lockerproject/locker/driver"
)

// bruteForce is the grant rule, written out literally.
func bruteForce(queue []driver.Ticket, i int) bool {
	exclusive, shared := 0, 0
	for j := range queue {
		if j >= i {
			continue
		}
		if queue[j].Shared {
			shared++
		} else {
			exclusive++
		}
	}
	if !queue[i].Shared {
		return exclusive == 0 && shared == 0
	}
	if exclusive > 0 {
		return false
	}
	return queue[i].Limit == 0 || shared < queue[i].Limit
}

var anyQueue = rapid.SliceOf(rapid.Custom(func(t *rapid.T) driver.Ticket {
	shared := rapid.Bool().Draw(t, "shared")
	limit := 0
	if shared {
		limit = rapid.IntRange(0, 4).Draw(t, "limit")
	}
	return driver.Ticket{Shared: shared, Limit: limit}
}))

func TestGrantableIsTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queue := anyQueue.Draw(t, "queue")
		granted := driver.Granted(queue)
		exclusive, holders := 0, 0
		for i := range queue {
			want := bruteForce(queue, i)
			if got := driver.Grantable(queue, i); got != want {
				t.Fatalf("Grantable(%d) = %v, want %v", i, got, want)
			}
			if granted[i] != want {
				t.Fatalf("Granted()[%d] = %v, want %v", i, granted[i], want)
			}
			if want {
				holders++
				if !queue[i].Shared {
					exclusive++
				}
			}
		}
		if exclusive > 1 || exclusive == 1 && holders > 1 {
			t.Fatalf("%d exclusive among %d holders", exclusive, holders)
		}
		if len(queue) > 0 && holders == 0 {
			t.Fatal("nobody in the queue is granted")
		}
	})
}
