package nats

import "github.com/lockerproject/locker/driver/internal/casqueue"

// Store returns the store that the driver gives to the engine.
func (d *Driver) Store() interface {
	casqueue.Store
	casqueue.Clock
	casqueue.Watcher
} {
	return d.client
}
