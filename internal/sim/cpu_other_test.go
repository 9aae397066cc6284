//go:build !unix

package sim

import "time"

func processorTime() time.Duration { return 0 }
