// Cache: one rebuilds what many miss, and the others wait and read it.
//
//	go run ./examples/cache                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/cache    # on any store
//
// An entry that is costly to make has expired, and all who want it find that
// out at once. Without a lock each of them makes it. With the lock one does; the
// others wait for the lock, look again, and find the entry there.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
)

const visitors = 20

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

func run(ctx context.Context, url string) (r result, err error) {
	r.without, r.with = &cache{}, &cache{}
	var group errgroup.Group
	for range visitors {
		group.Go(func() error {
			l, err := locker.Open(ctx, url) // one for each visitor, as if each came to another server
			if err != nil {
				return err
			}
			defer l.Close()
			r.without.get()
			return r.with.getLocked(ctx, l)
		})
	}
	err = group.Wait()
	return r, err
}

// cache holds one page, once it has been built.
type cache struct {
	mu     sync.Mutex
	page   string
	served int // visitors who got the page
	built  int // times that it was built
}

func (c *cache) get() {
	if !c.read() {
		c.build()
		c.read()
	}
}

func (c *cache) getLocked(ctx context.Context, l locker.Locker) error {
	if c.read() {
		return nil // most visitors need no lock
	}
	return locker.Do(ctx, l, "cache:frontpage", func(context.Context) error {
		c.get() // looks again: whoever was first has built it
		return nil
	})
}

// read serves the page, if there is one.
func (c *cache) read() (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.page == "" {
		return false
	}
	c.served++
	return true
}

func (c *cache) build() {
	time.Sleep(50 * time.Millisecond) // a query over everything
	c.mu.Lock()
	defer c.mu.Unlock()
	c.page = "news"
	c.built++
}

type result struct{ without, with *cache }

func (r result) String() string {
	return fmt.Sprintf("%d visitors of a page that has expired\nwithout a lock: pages built: %d, served: %d\nwith the lock:  pages built: %d, served: %d",
		visitors, r.without.built, r.without.served, r.with.built, r.with.served)
}
