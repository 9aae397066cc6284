//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/lockerproject/locker/internal/testbed"
)

// employ runs the i-th member of the crew until ctx ends, each process for a random
// time.
func (s *soak) employ(ctx context.Context, i int) {
	for n := 0; ctx.Err() == nil; n++ {
		s.runOne(ctx, i, task{
			ID: fmt.Sprintf("w%d.%d", i, n), URL: s.urls[i%len(s.urls)], Seed: s.seed + uint64(i)<<32 + uint64(n)<<40,
			Threads: s.threads, Groups: s.groups, TTLs: s.store.ttls, Life: time.Duration(20+(i*7+n*13)%60) * time.Second,
			Log: filepath.Join(s.dir, "workers.log"),
		})
	}
}

// runOne runs one process to its end.
func (s *soak) runOne(ctx context.Context, i int, t task) {
	text, err := json.Marshal(t)
	s.must(err)
	b := &testbed.Program{Broken: func(why string) {
		if ctx.Err() == nil { // afterwards a process may have ended before it is told to
			s.bed.Broken(why)
		}
	}}
	defer b.End()
	p := testbed.Child(b, "worker", taskVariable+"="+string(text), "LD_PRELOAD=")
	s.witness.note(func(t *totals) { t.Processes++ })
	s.crew[i].Store(p)
	defer s.crew[i].Store(nil)
	defer s.witness.gone(t.ID)

	told := context.AfterFunc(ctx, func() {
		p.Send("end")
		time.AfterFunc(s.ending, func() {
			if s.crew[i].Load() == p {
				s.witness.observe(event{Kind: broken, ID: t.ID, At: now(), Why: fmt.Sprintf("a worker did not end within %v after it was told to", s.ending)})
				p.Kill()
			}
		})
	})
	defer told()
	for line := range p.Lines() {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err == nil { // the last may be cut off
			s.witness.observe(e)
		}
	}
	if err := p.Wait(); err != nil {
		s.witness.observe(event{Kind: broken, ID: t.ID, At: now(), Why: "a worker crashed: " + err.Error()})
	}
}
