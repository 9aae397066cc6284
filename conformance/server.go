package conformance

import "sync"

// server is the harness's Server, which is started and resumed when the case ends.
type server struct {
	s  Server
	mu sync.Mutex

	down, paused bool
}

// server returns the store, to be broken. The client that observes the queues is opened before that.
func (e *env) server() *server {
	e.control()
	s := &server{s: e.h.Server}
	e.onHeal(func() { s.resume(); s.start() })
	return s
}

func (s *server) kill()   { s.set(&s.down, true, s.s.Kill) }
func (s *server) start()  { s.set(&s.down, false, s.s.Start) }
func (s *server) pause()  { s.set(&s.paused, true, s.s.Pause) }
func (s *server) resume() { s.set(&s.paused, false, s.s.Resume) }

// set calls change unless the state is as it is to be.
func (s *server) set(state *bool, to bool, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *state != to {
		*state = to
		change()
	}
}
