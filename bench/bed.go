package main

import (
	"fmt"
	"os"
	"testing"
)

// bed is the testing.TB that the testbed wants, for a program that is no test.
type bed struct {
	testing.TB // what is not overridden here is not called
	cleanups   []func()
}

func (*bed) Helper()             {}
func (*bed) Name() string        { return "bench" }
func (*bed) Failed() bool        { return false }
func (*bed) Log(args ...any)     { fmt.Fprintln(os.Stderr, args...) }
func (b *bed) Cleanup(f func())  { b.cleanups = append(b.cleanups, f) }
func (b *bed) Error(args ...any) { b.Fatal(args...) }
func (b *bed) Skip(args ...any)  { b.Fatal(args...) }

func (b *bed) Logf(format string, args ...any)   { b.Log(fmt.Sprintf(format, args...)) }
func (b *bed) Errorf(format string, args ...any) { b.Fatal(fmt.Sprintf(format, args...)) }
func (b *bed) Fatalf(format string, args ...any) { b.Fatal(fmt.Sprintf(format, args...)) }
func (b *bed) Skipf(format string, args ...any)  { b.Fatal(fmt.Sprintf(format, args...)) }

func (b *bed) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, append([]any{"bench:"}, args...)...)
	b.end()
	os.Exit(1)
}

// check ends the run on an error.
func (b *bed) check(err error) {
	if err != nil {
		b.Fatal(err)
	}
}

// end runs the cleanups, last first.
func (b *bed) end() {
	for len(b.cleanups) > 0 {
		last := len(b.cleanups) - 1
		f := b.cleanups[last]
		b.cleanups = b.cleanups[:last]
		f()
	}
}
