package locker

import "context"

// Mutex is a lock bound to a name, as sync.Mutex is to a variable:
//
//	stock := locker.NewMutex(l, "stock:42")
//	…
//	held, err := stock.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer held.Release(ctx)
//
// Lock returns a handle to release, and there is no Unlock, because a lock can be
// lost and a handle never releases somebody else's lock. All methods may be called
// from many goroutines at once. They exclude goroutines as they exclude processes, except
// under the context of the lock itself (Lock.Context, Do) and for one explicit owner
// (WithOwner): these re-enter, unless WithoutReentry is given.
type Mutex struct{ exclusiveBinding }

// NewMutex binds a name and options that apply to every call. It does not ask the
// store, and panics when l is nil. Invalid names and options are reported by each
// call. Shared and Limit are invalid for a Mutex.
func NewMutex(l Locker, name string, opts ...Option) *Mutex {
	return &Mutex{exclusiveBinding{bind("NewMutex", l, name, opts)}}
}

// RWMutex is a readers/writer lock bound to a name: any number of readers, or one
// writer. The queue is first come, first served, so neither readers nor writers
// starve. Lock, TryLock and Do are for writing.
type RWMutex struct{ exclusiveBinding }

// NewRWMutex is NewMutex for readers and writers.
func NewRWMutex(l Locker, name string, opts ...Option) *RWMutex {
	return &RWMutex{exclusiveBinding{bind("NewRWMutex", l, name, opts)}}
}

// RLock acquires the name for reading.
func (m *RWMutex) RLock(ctx context.Context, opts ...Option) (*Lock, error) {
	return m.acquire(ctx, reader, opts)
}

// TryRLock acquires the name for reading if it can be granted now.
func (m *RWMutex) TryRLock(ctx context.Context, opts ...Option) (*Lock, error) {
	return m.tryAcquire(ctx, reader, opts)
}

// RDo runs fn while holding the lock for reading.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	return m.do(ctx, reader, fn, opts)
}

// Semaphore is a semaphore bound to a name: a number of permits.
type Semaphore struct {
	binding
	n int
}

// NewSemaphore is NewMutex for n permits. All users of the name give the same n.
func NewSemaphore(l Locker, name string, n int, opts ...Option) *Semaphore {
	return &Semaphore{bind("NewSemaphore", l, name, opts), n}
}

// Acquire waits for a permit, which Lock.Release returns.
func (s *Semaphore) Acquire(ctx context.Context, opts ...Option) (*Lock, error) {
	return s.acquire(ctx, Limit(s.n), opts)
}

// TryAcquire takes a permit if one is free now.
func (s *Semaphore) TryAcquire(ctx context.Context, opts ...Option) (*Lock, error) {
	return s.tryAcquire(ctx, Limit(s.n), opts)
}

// Do runs fn while holding a permit.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	return s.do(ctx, Limit(s.n), fn, opts)
}

// exclusive and reader set the kind of an acquisition, whatever the Client's
// defaults are.
func exclusive(r *request) { r.shared, r.permits, r.limit = false, false, 0 }
func reader(r *request)    { r.shared, r.permits, r.limit = true, false, 0 }

// exclusiveBinding has the methods that Mutex and RWMutex share.
type exclusiveBinding struct{ binding }

// Lock is Acquire of the name. opts come after those that were bound.
func (b *exclusiveBinding) Lock(ctx context.Context, opts ...Option) (*Lock, error) {
	return b.acquire(ctx, exclusive, opts)
}

// TryLock is TryAcquire of the name.
func (b *exclusiveBinding) TryLock(ctx context.Context, opts ...Option) (*Lock, error) {
	return b.tryAcquire(ctx, exclusive, opts)
}

// Do runs fn while holding the lock, as the function Do does.
func (b *exclusiveBinding) Do(ctx context.Context, fn func(ctx context.Context) error, opts ...Option) error {
	return b.do(ctx, exclusive, fn, opts)
}

// binding is a name with options.
type binding struct {
	l    Locker
	name string
	opts []Option
}

func bind(what string, l Locker, name string, opts []Option) binding {
	if l == nil {
		panic("locker: " + what + ": the Locker is nil")
	}
	return binding{l: l, name: name, opts: append([]Option(nil), opts...)}
}

// Name returns the name.
func (b *binding) Name() string { return b.name }

// all returns the options of one call, the kind last.
func (b *binding) all(op string, kind Option, opts []Option) ([]Option, error) {
	all := append(append(make([]Option, 0, len(b.opts)+len(opts)+1), b.opts...), opts...)
	var r request
	for _, o := range all {
		if o != nil {
			o(&r)
		}
	}
	if r.shared {
		return nil, failOn(b.l, op, b.name, invalid("Shared and Limit: the type of the lock decides that"))
	}
	return append(all, kind), nil
}

func (b *binding) acquire(ctx context.Context, kind Option, opts []Option) (*Lock, error) {
	all, err := b.all("acquire", kind, opts)
	if err != nil {
		return nil, err
	}
	return b.l.Acquire(ctx, b.name, all...)
}

func (b *binding) tryAcquire(ctx context.Context, kind Option, opts []Option) (*Lock, error) {
	all, err := b.all("try to acquire", kind, opts)
	if err != nil {
		return nil, err
	}
	return b.l.TryAcquire(ctx, b.name, all...)
}

func (b *binding) do(ctx context.Context, kind Option, fn func(ctx context.Context) error, opts []Option) error {
	all, err := b.all("acquire", kind, opts)
	if err != nil {
		return err
	}
	return Do(ctx, b.l, b.name, fn, all...)
}
