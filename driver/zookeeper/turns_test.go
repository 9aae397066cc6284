package zookeeper

import "testing"

// A try that has its turn in one queue holds up no try in another one.
func TestTurnsAreOfOneQueue(t *testing.T) {
	d := &Driver{turns: make(map[string]chan struct{})}
	for _, parent := range []string{"/a", "/b"} {
		e := &enqueueing{d: d, parent: parent}
		if err := e.takeTurn(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer e.endTurn()
	}
}
