package coord_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/coord"
	"github.com/lockerproject/locker/driver/memory"
)

func ExampleOnce() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()
	for range 3 { // instances whose clocks say that it is time
		ran, err := coord.Once(ctx, l, "report", 30*time.Second, func(context.Context) error {
			fmt.Println("reporting")
			return nil
		})
		fmt.Println(ran, err)
	}
	// Output:
	// reporting
	// true <nil>
	// false <nil>
	// false <nil>
}

func ExampleLatch() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()
	imported, err := coord.NewLatch(l, "import of 2026-11-22", 2, time.Hour)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, file := range []string{"accounts.csv", "payments.csv", "payments.csv"} { // one of them twice
		if err := imported.CountDown(ctx, file); err != nil {
			fmt.Println(err)
		}
		missing, _ := imported.Missing(ctx)
		fmt.Println(file, "is done, missing:", missing)
	}
	fmt.Println("open:", imported.Wait(ctx))
	// Output:
	// accounts.csv is done, missing: 1
	// payments.csv is done, missing: 0
	// payments.csv is done, missing: 0
	// open: <nil>
}

func ExampleBarrier() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()
	step, err := coord.NewBarrier(l, "simulation", 2, 10*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		steps [2]int
	)
	for party := range 2 {
		group.Go(func() {
			for range 3 {
				mu.Lock()
				steps[party]++
				mu.Unlock()
				if err := step.Wait(ctx); err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	group.Wait()
	fmt.Println(steps)
	// Output: [3 3]
}
