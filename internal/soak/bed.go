//go:build linux

package main

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// bed is the testing.TB that the testbed wants, for a program that is no test. What
// fails ends the run.
type bed struct {
	testing.TB // what is not overridden here is not called

	fail func(why string)

	mu       sync.Mutex
	cleanups []func()
}

func (*bed) Helper()                             {}
func (*bed) Name() string                        { return "soak" }
func (*bed) Failed() bool                        { return false }
func (*bed) Log(args ...any)                     { fmt.Fprintln(os.Stderr, args...) }
func (b *bed) Fatal(a ...any)                    { b.fail(fmt.Sprint(a...)) }
func (b *bed) Error(a ...any)                    { b.fail(fmt.Sprint(a...)) }
func (b *bed) Skip(a ...any)                     { b.fail(fmt.Sprint(a...)) }
func (b *bed) Fatalf(format string, args ...any) { b.fail(fmt.Sprintf(format, args...)) }
func (b *bed) Errorf(format string, args ...any) { b.fail(fmt.Sprintf(format, args...)) }
func (b *bed) Skipf(format string, args ...any)  { b.fail(fmt.Sprintf(format, args...)) }
func (b *bed) Logf(format string, args ...any)   { b.Log(fmt.Sprintf(format, args...)) }

func (b *bed) Cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, f)
}

// end runs the cleanups, last first.
func (b *bed) end() {
	for {
		b.mu.Lock()
		n := len(b.cleanups)
		if n == 0 {
			b.mu.Unlock()
			return
		}
		f := b.cleanups[n-1]
		b.cleanups = b.cleanups[:n-1]
		b.mu.Unlock()
		f()
	}
}
