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
	"context"
	"fmt"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
	"github.com/lockerproject/locker/examples/internal/scenario"
)

const (
	writers = 2
	readers = 6
	turns   = 10 // of each
)

func main() { scenario.Main(run) }

func run(ctx context.Context, url string) (r result, err error) {
	r.without, r.with = &document{}, &document{}
	err = scenario.Workers(ctx, url, writers+readers, func(i int, _ locker.Locker) error {
		for range turns {
			r.without.use(i)
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	err = scenario.Workers(ctx, url, writers+readers, func(i int, l locker.Locker) error {
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
	})
	return r, err
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
