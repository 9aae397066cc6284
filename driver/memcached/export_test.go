package memcached

import (
	"time"

	"github.com/lockerproject/locker/driver/internal/casqueue"
)

// ClockError is what the driver states for its servers' clocks.
const ClockError = clockError

// Clock returns the clock of the first server.
func (d *Driver) Clock() casqueue.Clock { return d.servers[0].client }

// Store returns the store of the first server.
func (d *Driver) Store() casqueue.Store { return d.servers[0].client }

// Pause is what the engine of the first server waits with.
func (d *Driver) Pause(pause time.Duration) bool { return d.servers[0].client.pause(pause) }
