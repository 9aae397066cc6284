package main

import (
	"fmt"
	"os"

	"github.com/lockerproject/locker/internal/testbed"
)

// bed is what the testbed wants. What fails ends the program.
type bed struct{ *testbed.Program }

func newBed() *bed {
	b := &bed{new(testbed.Program)}
	b.Broken = func(why string) {
		fmt.Fprintln(os.Stderr, "bench:", why)
		b.End()
		os.Exit(1)
	}
	return b
}

// check ends the run on an error.
func (b *bed) check(err error) {
	if err != nil {
		b.Fatal(err)
	}
}
