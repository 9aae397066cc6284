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
	// Get reads documents, a hundred at most, in the order of the keys, each as it is at some time after the call
	// began: never an old copy, such as that of a replica. A document that does not exist has the zero Version. If the
	// store refuses some of them, and not all, those have an Err.
	Get(ctx context.Context, keys ...string) ([]Document, error)
	// Put replaces a document if it still has the version read. If read is the zero Version, Put creates the
	// document if there is none. Otherwise Put returns ErrChanged and does nothing, now or later; it is a *Changed if
	// the store says with its answer what it has instead. The store may forget the document when keep has passed; it
	// need not.
	Put(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (Version, error)
	// Set writes a document without a condition. If it fails, the document may be as it was, but must not be missing:
	// a heartbeat that is lost before keep has passed would be taken for one that was never sent.
	Set(ctx context.Context, key string, value []byte, keep time.Duration) error
}

// Blind is a Store whose Put makes one request more, for the new Version.
type Blind interface {
	// PutBlind is Put, and may return a Version that no content has: the process will read the document before it
	// writes it again.
	PutBlind(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (Version, error)
}

// Watcher is a Store that can report changes. Without it the engine polls.
type Watcher interface {
	// Watch calls changed once when it has begun to watch, and then after every change of the document, until
	// ctx ends or Watch fails.
	Watch(ctx context.Context, key string, changed func()) error
}

// Clock is a Store whose clock its clients can read. Then a process that has observed a ticket tells the next ones since
// when. Without it each process has to observe for the whole life of a ticket by itself: processes that live for less
// never find out that another one has died.
type Clock interface {
	// Time reads the store's clock.
	Time(ctx context.Context) (Time, error)
}

// Time is a reading of the store's clock. Only readings of one clock are compared.
type Time struct {
	Clock string // which clock it is: that of another machine, or of a server that was started again, is another one

	// The clock showed at least Earliest when Time returned, and at most Latest when it was called.
	Earliest, Latest time.Duration
}

var (
	// ErrChanged says that a document was changed since it was read.
	ErrChanged = errors.New("the document has changed")
	// ErrTooLarge says that the store accepts no document of that size.
	ErrTooLarge = errors.New("the queue is full: its document would be larger than the store takes")
)

// Full is an ErrTooLarge that refuses the queue of another name, and says why: nothing was done.
type Full string

func (f Full) Error() string { return string(f) }

// Is reports whether the target is ErrTooLarge.
func (f Full) Is(target error) bool { return target == ErrTooLarge }

// Changed is an ErrChanged with the document as it was at some time after Put was called: it need not be read then.
type Changed struct{ Now Document }

func (c *Changed) Error() string { return ErrChanged.Error() }

// Is reports whether the target is ErrChanged.
func (c *Changed) Is(target error) bool { return target == ErrChanged }

// Version identifies one content of a document. No other content of the document ever has the same Version. Era is
// for stores whose numbers may begin again when they have lost everything.
type Version struct{ Era, Number uint64 }

// Document is a document as it was read.
type Document struct {
	Value   []byte
	Version Version // zero: there is no document
	Expired bool    // the store has kept it for longer than it had to: its tickets have expired, its numbers go on
	Err     error   // why it was not read, though others were
}
