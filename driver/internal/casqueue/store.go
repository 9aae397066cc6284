package casqueue

import (
	"context"
	"errors"
	"time"
)

// Store is what the engine asks of a store. Its methods may be called from many goroutines at once. Each sends one
// request, never repeats it silently, and returns when ctx ends at the latest. Every error but ErrChanged and
// ErrTooLarge means that the outcome is unknown: the request may have been done, or may be done later.
type Store interface {
	// Get reads documents, in the order of the keys, each as it is at some time after the call began: never an old
	// copy, such as that of a replica. A document that does not exist has the zero Version.
	Get(ctx context.Context, keys ...string) ([]Document, error)
	// Put replaces a document if it still has the version read. If read is the zero Version, Put creates the
	// document if there is none. Otherwise Put returns ErrChanged and does nothing, now or later. The store may
	// forget the document when keep has passed; it need not.
	Put(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (Version, error)
	// Set writes a document without a condition.
	Set(ctx context.Context, key string, value []byte, keep time.Duration) error
}

// Watcher is a Store that can report changes. Without it the engine polls.
type Watcher interface {
	// Watch calls changed once when it has begun to watch, and then after every change of the document, until
	// ctx ends or Watch fails.
	Watch(ctx context.Context, key string, changed func()) error
}

var (
	// ErrChanged says that a document was changed since it was read.
	ErrChanged = errors.New("the document has changed")
	// ErrTooLarge says that the store accepts no document of that size.
	ErrTooLarge = errors.New("the queue is full: its document would be larger than the store takes")
)

// Version identifies one content of a document. No other content of the document ever has the same Version. Era is
// for stores whose numbers may begin again when they have lost everything.
type Version struct{ Era, Number uint64 }

// Document is a document as it was read.
type Document struct {
	Value   []byte
	Version Version // zero: there is no document
	Expired bool    // the store has kept it for longer than it had to: its tickets have expired, its numbers go on
}
