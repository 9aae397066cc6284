package nats

import "github.com/lockerproject/locker/driver/internal/casqueue"

// Store is what the driver tells the engine of NATS.
func (d *Driver) Store() interface {
	casqueue.Store
	casqueue.Watcher
} {
	return d.client
}

// WithHash sets the hash of names, so that several may have the same.
func WithHash(f func(string) string) Option { return func(o *options) { o.hash = f } }
