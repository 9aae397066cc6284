package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
	"github.com/lockerproject/locker/fence"
)

const stock = 10

// guarding is what the shop guards.
type guarding int

const (
	nothing guarding = iota
	writes
	everything
)

func (g guarding) String() string {
	return [...]string{"without a guard", "comparing at the write only", "raised by the read, too"}[g]
}

// A Request is what a worker asks of the shop. It carries the lock's name and token,
// as a request over a network would.
type Request struct {
	Worker string
	Name   string
	Token  uint64
	Items  int // to write
}

// shop is the resource: it serves workers, and stops A when A has read.
type shop struct {
	url    string // "": the locks are in this process
	guards guarding
	locks  *locker.Client // for workers, if url is ""
	a      *os.Process
	readA  chan struct{} // closed when A has read, and is stopped
	doneA  chan struct{} // closed when A has ended

	guard fence.Guard
	mu    sync.Mutex // in one operation
	items int
	sold  int

	outcome map[string]string // of a worker; what A does is over before B does it
}

func newShop(ctx context.Context, url string, guards guarding) (*shop, error) {
	s := &shop{
		url: url, guards: guards, items: stock, outcome: map[string]string{},
		readA: make(chan struct{}), doneA: make(chan struct{}),
	}
	if url != "" {
		return s, nil
	}
	var err error
	s.locks, err = locker.Open(ctx, "memory://fencing")
	return s, err
}

func (s *shop) close() error {
	if s.locks == nil {
		return nil
	}
	return s.locks.Close()
}

// guarded runs fn behind the guard, if the shop guards that operation.
func (s *shop) guarded(r Request, op guarding, fn func() error) error {
	atomic := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return fn()
	}
	if s.guards < op {
		return atomic()
	}
	return s.guard.Do(fence.Token(r.Name, r.Token), atomic)
}

// Methods are what workers call.
type Methods struct{ s *shop }

// Lock acquires the lock for a worker, where the store is in this process: under a
// lease that ends by itself, as that of a worker who does not renew it does.
func (m Methods) Lock(r Request, token *uint64) error {
	k, err := m.s.locks.Acquire(context.Background(), r.Name, locker.WithTTL(ttl), locker.WithoutRenewal())
	if err != nil {
		return err
	}
	*token = k.Token()
	return nil
}

// Read returns the stock. It stops A before the answer is on its way; and when
// B has the lock and has read, A goes on, and B when A is done.
func (m Methods) Read(r Request, items *int) error {
	s := m.s
	if err := s.guarded(r, everything, func() error { *items = s.items; return nil }); err != nil {
		return err
	}
	if r.Worker == "A" {
		defer close(s.readA)
		return pause(s.a)
	}
	if err := resume(s.a); err != nil {
		return err
	}
	<-s.doneA
	return nil
}

// Write sells one item: it leaves the number that the worker says.
func (m Methods) Write(r Request, refused *string) error {
	s := m.s
	err := s.guarded(r, writes, func() error {
		s.items = r.Items
		s.sold++
		return nil
	})
	s.outcome[r.Worker] = fmt.Sprintf("wrote %d", r.Items)
	if errors.Is(err, fence.ErrStale) {
		*refused = err.Error()
		s.outcome[r.Worker], err = "refused, its token is stale", nil
	}
	return err
}

// pauseOne runs A and B; A is stopped once it has read, until B has read.
func (s *shop) pauseOne(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills the workers, also a stopped one
	a, err := s.start(ctx, "A")
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		defer close(s.doneA)
		ended <- a()
	}()
	select {
	case <-s.readA:
	case err := <-ended:
		return errors.Join(errors.New("worker A ended before it was stopped"), err)
	}
	b, err := s.start(ctx, "B")
	if err == nil {
		err = b()
	}
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-ended)
}

// start starts this program once more, as a worker that talks to the shop over its
// standard input and output. The function it returns serves the worker and waits
// for its end.
func (s *shop) start(ctx context.Context, name string) (wait func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), workerEnv+"="+name, "LOCKER_URL="+s.url)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	outgoing, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	server := rpc.NewServer()
	if err := server.RegisterName("Shop", Methods{s}); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if name == "A" {
		s.a = cmd.Process
	}
	return func() error {
		server.ServeConn(pipe{outgoing, in}) // until the worker ends
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("worker %s: %w", name, err)
		}
		return nil
	}, nil
}

// pipe is a connection over two pipes.
type pipe struct {
	io.Reader
	io.WriteCloser
}
