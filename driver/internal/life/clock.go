package life

import "time"

// Elapsed returns how much time lies between two times of this machine, including that in which it was suspended, while its
// monotonic clock stands still. A wall clock that was set back hides a suspension, and no more.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// SuspendedSince returns for how long this machine was suspended since a time. The core counts suspensions only from the call
// of Acquire on: what a driver has concluded from an earlier request is its own affair.
func SuspendedSince(t time.Time) time.Duration {
	now := time.Now()
	return Elapsed(t, now) - now.Sub(t)
}
