package driver_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/lockerproject/locker/driver"
)

// bruteForce is the rule word by word, with nothing clever.
func bruteForce(line []driver.Ticket, i int) bool {
	exclusive, shared := 0, 0
	for j := range line {
		if j >= i {
			continue
		}
		if line[j].Shared {
			shared++
		} else {
			exclusive++
		}
	}
	if !line[i].Shared {
		return exclusive == 0 && shared == 0
	}
	if exclusive > 0 {
		return false
	}
	return line[i].Limit == 0 || shared < line[i].Limit
}

var anyLine = rapid.SliceOf(rapid.Custom(func(t *rapid.T) driver.Ticket {
	shared := rapid.Bool().Draw(t, "shared")
	limit := 0
	if shared {
		limit = rapid.IntRange(0, 4).Draw(t, "limit")
	}
	return driver.Ticket{Shared: shared, Limit: limit}
}))

func TestGrantableIsTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := anyLine.Draw(t, "line")
		granted := driver.Granted(line)
		exclusive, holders := 0, 0
		for i := range line {
			want := bruteForce(line, i)
			if got := driver.Grantable(line, i); got != want {
				t.Fatalf("Grantable(%d) = %v, want %v", i, got, want)
			}
			if granted[i] != want {
				t.Fatalf("Granted()[%d] = %v, want %v", i, granted[i], want)
			}
			if want {
				holders++
				if !line[i].Shared {
					exclusive++
				}
			}
		}
		if exclusive > 1 || exclusive == 1 && holders > 1 {
			t.Fatalf("%d exclusive among %d holders", exclusive, holders)
		}
		if len(line) > 0 && holders == 0 {
			t.Fatal("the line stands still")
		}
	})
}
