package casqueue

import (
	"context"
	"errors"
	"time"
)

// Store is what the engine asks of a store. Its methods may be called from many goroutines at once, send one
// request each, repeat none silently, and return when ctx ends at the latest. Every error but ErrChanged and
// ErrTooLarge means that it is unknown whether the request was done, or will be.
type Store interface {
	// Get reads documents, in the order of the keys, each as it is at some time after the call: an old copy, as a
	// replica may have, is none. One that is not there has no version.
	Get(ctx context.Context, keys ...string) ([]Document, error)
	// Put replaces a document if its version still is the one that was read, or creates it if that is the zero
	// Version. Otherwise it returns ErrChanged and does nothing, then or later. The store may forget the document
	// when keep has passed since; it need not.
	Put(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (Version, error)
	// Set writes a document whatever is there.
	Set(ctx context.Context, key string, value []byte, keep time.Duration) error
}

// Watcher is a Store that can tell of changes. Without it the engine polls.
type Watcher interface {
	// Watch calls changed after every change of a document, and once when it has begun to watch, until ctx ends
	// or it fails.
	Watch(ctx context.Context, key string, changed func()) error
}

var (
	// ErrChanged says that a document was changed since it was read.
	ErrChanged = errors.New("the document has changed")
	// ErrTooLarge says that the store takes no document of that size.
	ErrTooLarge = errors.New("the queue is full: its document would be larger than the store takes")
)

// Version identifies what a document contained at a time. No other content of the document ever has it. Era is
// for stores whose numbers may begin again when they have lost everything.
type Version struct{ Era, Number uint64 }

// Document is a document as it was read.
type Document struct {
	Value   []byte
	Version Version // zero: there is no document
	Expired bool    // it was to be kept no longer, and the store has it still: its tickets are dead, its numbers go on
}
