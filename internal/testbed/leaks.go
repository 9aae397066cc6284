package testbed

import "time"

// leakWait is how long goroutines may still run after the tests. pgx cancels a request
// that its caller has left on a connection of its own, after Close has returned, and gives
// a busy server 15 s to answer.
const leakWait = 20 * time.Second

// Leaks calls find, which is goleak.Find, until it finds no goroutine, and returns its last
// error: the goroutines that do not end.
func Leaks(find func() error) error {
	for end := time.Now().Add(leakWait); ; {
		if err := find(); err == nil || time.Now().After(end) {
			return err
		}
	}
}
