package sim

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// stream is the random numbers of one actor: a program, a connection, a fault. Its seed
// is made of the seed of the run and the actor's name, so what one actor draws does not
// depend on how often the others have drawn.
type stream struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func newStream(seed uint64, actor string) *stream {
	h := fnv.New64a()
	_, _ = h.Write([]byte(actor))
	return &stream{rnd: rand.New(rand.NewPCG(seed, h.Sum64()))} //nolint:gosec // no secret
}

// n draws 0 to n-1.
func (s *stream) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

// one is true once in n times.
func (s *stream) one(n int) bool { return s.n(n) == 0 }

// between draws a duration, each power of two as likely as the next.
func (s *stream) between(least, most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), s.rnd.Float64()))
}

func rand1(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d) + 1)) }

// upTo draws a duration, each as likely as the next.
func (s *stream) upTo(most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return rand1(s.rnd, most)
}

// some draws n of several, some perhaps twice.
func some[T any](s *stream, n int, of []T) (all []T) {
	for range n {
		all = append(all, pick(s, of...))
	}
	return all
}

// pick draws one of several.
func pick[T any](s *stream, of ...T) T { return of[s.n(len(of))] }
