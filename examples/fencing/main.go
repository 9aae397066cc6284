// Fencing: a process that holds a lock is paused past its lease, and writes when
// it wakes.
//
//	go run ./examples/fencing                                      # locks in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/fencing    # on any store
//
// This program keeps a stock of 10 items. It starts two worker processes, each of
// which takes the lock, reads the stock and writes one item less. The first, A, is
// stopped (SIGSTOP) as soon as it has read, until its lease has ended and B has
// the lock. That is done three times: without a guard, with a guard that compares
// tokens at the write alone, and with one that the read raises too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	if os.Getenv(workerEnv) != "" {
		if err := work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "fencing: worker:", err)
			os.Exit(1)
		}
		return
	}
	limit := flag.Duration("limit", 2*time.Minute, "give up after this time")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	if err := run(ctx, os.Stdout, os.Getenv("LOCKER_URL")); err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
}

// run shows the three ways; an empty url keeps the locks in this process.
func run(ctx context.Context, out io.Writer, url string) error {
	for _, g := range []guarding{nothing, writes, everything} {
		s, err := newShop(ctx, url, g)
		if err != nil {
			return err
		}
		if err := errors.Join(s.pauseOne(ctx), s.close()); err != nil {
			return fmt.Errorf("%v: %w", g, err)
		}
		verdict := "right"
		if want := stock - s.sold; s.items != want {
			verdict = fmt.Sprintf("WRONG, want %d", want)
		}
		fmt.Fprintf(out, "%-28s A: %s; B: %s; sold %d of %d, left %d: %s\n",
			g.String()+":", s.outcome["A"], s.outcome["B"], s.sold, stock, s.items, verdict)
		if g == everything && verdict != "right" {
			return errors.New("the guard did not hold")
		}
	}
	return nil
}
