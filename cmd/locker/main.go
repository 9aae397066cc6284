// Command locker runs programs under distributed locks, and shows who holds
// what. Install it with
//
//	go install github.com/lockerproject/locker/cmd/locker@latest
//
// and start with locker help.
package main

import (
	"os"

	"github.com/lockerproject/locker/internal/command"
)

func main() {
	os.Exit(command.Main(os.Args[1:], command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
