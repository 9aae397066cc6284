package testbed

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// Program is the testing.TB of a program that is no test. What fails is told to Broken.
type Program struct {
	messages
	Broken func(why string)

	mu       sync.Mutex
	cleanups []func()
}

// messages are the methods of testing.TB that a program has. What is not overridden is not called.
type messages struct{ testing.TB }

func (messages) Helper()                           {}
func (messages) Failed() bool                      { return false }
func (messages) Log(args ...any)                   { fmt.Fprintln(os.Stderr, args...) }
func (m messages) Logf(format string, args ...any) { m.Log(fmt.Sprintf(format, args...)) }

// Fatal implements testing.TB.
func (p *Program) Fatal(a ...any) { p.Broken(fmt.Sprint(a...)) }

// Fatalf implements testing.TB.
func (p *Program) Fatalf(format string, args ...any) { p.Broken(fmt.Sprintf(format, args...)) }

// Errorf implements testing.TB.
func (p *Program) Errorf(format string, args ...any) { p.Broken(fmt.Sprintf(format, args...)) }

// Skipf implements testing.TB.
func (p *Program) Skipf(format string, args ...any) { p.Broken(fmt.Sprintf(format, args...)) }

// Cleanup has End call f.
func (p *Program) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// End runs the cleanups, last first.
func (p *Program) End() {
	for {
		p.mu.Lock()
		last := len(p.cleanups) - 1
		if last < 0 {
			p.mu.Unlock()
			return
		}
		f := p.cleanups[last]
		p.cleanups = p.cleanups[:last]
		p.mu.Unlock()
		f()
	}
}
