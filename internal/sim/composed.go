package sim

import (
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
)

// all makes the world "all": each process needs two stores. In some seeds the first is one itself that needs
// two parts, and asks again with the same ticket; in some, programs move from one store to the other, and some of
// them use the one alone whose tokens count.
func (r *runner) all(two func(first, second string, join func(process string, a, b driver.Driver) driver.Driver)) {
	rnd := newStream(r.w.seed, "all")
	second, authority, nested := pick(rnd, "bank", "memcached"), 1, rnd.one(4)
	alone := make(map[string]bool)
	r.w.both = true
	if rnd.one(2) {
		authority, r.w.mixed = rnd.n(2), true
		for _, p := range r.plan.processes {
			alone[p.name] = rnd.one(3)
		}
	}
	two("bank", second, func(process string, a, b driver.Driver) driver.Driver {
		parts := []driver.Driver{a, b}
		if alone[process] {
			return r.w.checkAll(process, compose.All(parts[authority]))
		}
		if nested {
			parts[1] = r.w.checkAll(process, compose.All(b))
		}
		return r.w.checkAll(process, compose.All(parts...).Authority(authority))
	})
}

// allDriver is deeper in checkedAll than what checks its answers.
type allDriver struct{ *compose.AllDriver }

type checkedAll struct {
	*contract
	allDriver
}

func (w *world) checkAll(process string, d *compose.AllDriver) driver.Driver {
	return checkedAll{&contract{w: w, d: d, process: process}, allDriver{d}}
}

// fallbackDriver is deeper in checkedFallback than what checks its answers.
type fallbackDriver struct{ *compose.FallbackDriver }

type checkedFallback struct {
	*contract
	fallbackDriver
}

func (w *world) checkFallback(process string, d *compose.FallbackDriver) driver.Driver {
	return checkedFallback{&contract{w: w, d: d, process: process}, fallbackDriver{d}}
}
