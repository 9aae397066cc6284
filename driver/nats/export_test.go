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

// WithHash sets the hash of names, so that two names may share one.
func WithHash(f func(string) string) Option { return func(o *options) { o.hash = f } }
