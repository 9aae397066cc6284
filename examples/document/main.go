// Document: readers see a document whole, and writers lose no edit.
//
//	go run ./examples/document                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/document    # on any store
//
// A document of several pages is written from the first to the last, and read
// from the last to the first, page by page.
// Without a lock a reader sees old and new pages together, and two writers
// overwrite each other. Under the lock there is one writer, or any number of
// readers: Shared lets the readers in together.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
)

const (
	writers = 2
	readers = 6
	turns   = 10 // of each
)

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

func run(ctx context.Context, url string) (r result, err error) {
	r.without, r.with = &document{}, &document{}
	var group errgroup.Group
	for i := range writers + readers {
		group.Go(func() error { return r.use(ctx, url, i) })
	}
	err = group.Wait()
	return r, err
}

// use is what writer or reader i does, without a lock and then with it. Each has a Locker of its
// own, as in another process.
func (r result) use(ctx context.Context, url string, i int) error {
	l, err := locker.Open(ctx, url)
	if err != nil {
		return err
	}
	defer l.Close()
	for range turns {
		r.without.use(i)
	}
	var mode locker.Option // nil: exclusive
	if i >= writers {
		mode = locker.Shared()
	}
	for range turns {
		err := locker.Do(ctx, l, "document", func(context.Context) error {
			r.with.use(i)
			return nil
		}, mode)
		if err != nil {
			return err
		}
	}
	return nil
}

type result struct{ without, with *document }

func (r result) String() string {
	text := fmt.Sprintf("%d edits, %d reads", writers*turns, readers*turns)
	for _, d := range []*document{r.without, r.with} {
		name := "without a lock:"
		if d == r.with {
			name = "with the lock: "
		}
		text += fmt.Sprintf("\n%s %d edits are there, %d reads are torn, %d readers at the same time", name, d.pages[0], d.torn, d.most)
	}
	return text
}
