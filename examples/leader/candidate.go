package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/election"
)

// candidate does the job, while it leads if there is an election.
type candidate struct{ url, election string }

func (c candidate) run(ctx context.Context, l locker.Locker, did func(at time.Time)) error {
	work := func(ctx context.Context, _ *election.Term) error {
		for ctx.Err() == nil {
			did(time.Now())
			select {
			case <-ctx.Done():
			case <-time.After(tick):
			}
		}
		return nil
	}
	if c.election == "" {
		return work(ctx, nil)
	}
	e, err := election.New(l, c.election, election.WithTTL(ttl))
	if err != nil {
		return err
	}
	return e.Run(ctx, work)
}

// startHere starts a candidate in this process.
func startHere(ctx context.Context, c candidate, did func(at time.Time)) (kill func() error, wait func(), err error) {
	l, err := locker.Open(ctx, c.url)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	kill = func() error {
		defer cancel() // for who holds no lock
		return l.Close()
	}
	wait = func() {
		_ = c.run(ctx, l, did) // it was killed, or else try says that it has ended
		_ = kill()
	}
	return kill, wait, nil
}

// startProcess starts a candidate in another process of this program.
func startProcess(ctx context.Context, c candidate, did func(at time.Time)) (kill func() error, wait func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	p := exec.CommandContext(ctx, program) // killed when ctx ends
	p.Env = append(os.Environ(), "LOCKER_URL="+c.url, "LEADER_CANDIDATE=1", "LEADER_ELECTION="+c.election)
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := p.Start(); err != nil {
		return nil, nil, err
	}
	wait = func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if ns, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				did(time.Unix(0, ns)) // the clock is that of both
			}
		}
		_ = p.Wait() // as in startHere
	}
	return p.Process.Kill, wait, nil
}

// child runs the candidate that startProcess has set, if this process is of its
// making.
func child() bool {
	if os.Getenv("LEADER_CANDIDATE") == "" {
		return false
	}
	ctx := context.Background()
	l, err := locker.Open(ctx, os.Getenv("LOCKER_URL"))
	if err != nil {
		log.Fatal(err)
	}
	c := candidate{election: os.Getenv("LEADER_ELECTION")}
	err = c.run(ctx, l, func(at time.Time) { fmt.Println(at.UnixNano()) })
	if err := errors.Join(err, l.Close()); err != nil {
		log.Fatal(err)
	}
	return true
}
