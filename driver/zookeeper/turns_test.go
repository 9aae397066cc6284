package zookeeper

import (
	"sync"
	"testing"

	"github.com/lockerproject/locker/driver"
)

// A try that has its turn in one queue holds up no try in another one.
func TestTurnsAreOfOneQueue(t *testing.T) {
	d := &Driver{turns: make(map[string]*turn)}
	for _, parent := range []string{"/a", "/b"} {
		e := &enqueueing{d: d, parent: parent}
		if err := e.takeTurn(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer d.endTurn(parent)
	}
}

// A release ends all calls of Acquire for its ticket that have begun before, also one that has not had its turn yet.
func TestGiveUpAll(t *testing.T) {
	t.Parallel()
	ctx, d := inside(t)
	h := driver.Hold{Name: "x", ID: "1"}
	key := ticketKey(h)
	if err := d.takeTurn(ctx, key); err != nil {
		t.Fatal(err)
	}
	waits, second := make(chan struct{}), make(chan error)
	go func() { second <- d.takeTurn(noticed{Context: ctx, done: func() { close(waits) }}, key) }()
	<-waits
	d.turns[key].released = true
	d.endTurn(key)
	if err := <-second; err != nil || !d.givenUp(h) {
		t.Errorf("the second call may send a create, error %v", err)
	}

	waits = make(chan struct{})
	released := make(chan error, 1)
	var once sync.Once
	go func() {
		released <- d.giveUp(noticed{Context: ctx, done: func() { once.Do(func() { close(waits) }) }}, h)
	}()
	<-waits
	first, next := d.turns[key], &turn{over: make(chan struct{})} // of a call that had waited
	d.mu.Lock()
	d.turns[key] = next
	d.mu.Unlock()
	close(first.over)
	if answered(released) || !d.givenUp(h) {
		t.Error("the release has not waited for the second call")
	}
	d.endTurn(key)
	if err := <-released; err != nil {
		t.Error(err)
	}
}
