//go:build !linux

package memcached

import "time"

// shortTimer is for Linux: Go's own timers are as exact elsewhere, or there is nothing better.
type shortTimer struct{}

func (*shortTimer) wait(time.Duration) bool { return false }
func (*shortTimer) close()                  {}
