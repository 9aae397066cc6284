package main

import (
	"sync"
	"time"
)

// document has pages that all come from the same edit.
type document struct {
	mu    sync.Mutex
	pages [3]int // the edit that each is of
	open  int    // readers who read just now
	most  int    // readers who read at the same time
	torn  int    // times that a reader saw pages of different edits
}

// use is one turn of writer or reader i.
func (d *document) use(i int) {
	if i < writers {
		d.edit()
		return
	}
	d.reading(1)
	defer d.reading(-1)
	last := d.page(2) // the last page first: an edit may be on its way there
	if d.page(1) != last || d.page(0) != last {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.torn++
	}
}

func (d *document) edit() {
	next := d.page(0) + 1
	for i := range d.pages {
		time.Sleep(time.Millisecond) // as in page
		d.mu.Lock()
		d.pages[i] = next
		d.mu.Unlock()
	}
}

// page is the edit that page i is of.
func (d *document) page(i int) int {
	time.Sleep(time.Millisecond) // what a round trip takes
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pages[i]
}

func (d *document) reading(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open += n
	d.most = max(d.most, d.open)
}
