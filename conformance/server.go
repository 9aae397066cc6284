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

func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	s.s.Kill()
}

func (s *server) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		s.s.Start()
		s.down = false
	}
}

func (s *server) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
	s.s.Pause()
}

func (s *server) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		s.s.Resume()
		s.paused = false
	}
}
