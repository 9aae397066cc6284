//go:build !unix

package sim

import "time"

var started = time.Now()

// processorTime is how long the test has run.
func processorTime() time.Duration { return time.Since(started) }
