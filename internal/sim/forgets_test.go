//go:build !race

// What TestForgets looks at is guarded by locks that it does not take.

package sim

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/lockerproject/locker"
)

// mostKept is how many names and IDs a Client and its driver may remember that nobody uses any more: some are forgotten
// when others are used, or when there are many.
const mostKept = 64

// A program that uses ever new names needs no more memory for that: neither the IDs of tickets that are over nor the names of
// their locks stay in the Client or the driver. What a closure keeps is not seen.
func TestForgets(t *testing.T) {
	all := slices.Compact(slices.Sorted(slices.Values(worlds)))
	if *within != "" {
		all = strings.Split(*within, ",")
	}
	for _, world := range all {
		t.Run(world, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { forgets(t, world) })
		})
	}
}

func forgets(t *testing.T, in string) {
	w := &world{seed: 1, used: make(map[int64]bool), names: make(map[string]string)}
	w.begun, w.checked, w.stopped = time.Now(), make(chan struct{}), make(chan struct{})
	r := &runner{w: w, o: newOracle(w), plan: &plan{seed: 1, world: in}}
	r.build()
	var all []*process
	for _, name := range []string{"one", "other"} {
		p, err := newProcess(w, r.o, &processPlan{name: name, closes: 1}, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.opened(p)
		all = append(all, p)
	}
	rnd := newStream(1, "forgets")
	for i := range mostKept + mostKept/4 {
		if len(w.servers) > 0 {
			f := faultPlan{at: rnd.upTo(10 * time.Second), lasts: rnd.upTo(3 * time.Second), kind: pick(rnd, "cut", "cut", "reset", "pause", "down")}
			if f.kind == "cut" || f.kind == "reset" {
				f.process = pick(rnd, "one", "other")
			}
			go r.fault(f, newStream(1, fmt.Sprint("fault ", i)))
		}
		useOnce(all[0].client, all[1].client, fmt.Sprint("forgotten-", i))
	}
	time.Sleep(30 * time.Minute)
	for _, p := range all {
		if found := remembered(p.client); len(found) > mostKept {
			where := slices.Sorted(maps.Values(found))
			t.Errorf("%s remembers %d names and IDs, want %d at the most, of %d names: %s … %s", p.name, len(found), mostKept, mostKept+mostKept/4, where[0], where[len(where)-1])
		}
		p.close()
	}
	r.end()
	time.Sleep(time.Minute)
}

// useOnce uses a name in most ways.
func useOnce(one, other *locker.Client, name string) {
	ctx := context.Background()
	waits := func(l *locker.Client, patience time.Duration, opts ...locker.Option) (release func()) {
		done := make(chan *locker.Lock, 1)
		go func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			k, _ := l.Acquire(ctx, name, opts...)
			done <- k
		}()
		time.Sleep(200 * time.Millisecond)
		return func() {
			if k := <-done; k != nil {
				_ = k.Release(ctx)
			}
		}
	}
	first := waits(one, time.Minute, locker.WithTTL(5*time.Second))
	_, _ = other.TryAcquire(ctx, name, locker.WithoutRenewal(), locker.WithTTL(time.Second))
	givesUp := waits(one, 300*time.Millisecond)
	second, third := waits(other, time.Minute), waits(other, time.Minute, locker.Shared())
	_, _ = one.Inspect(ctx, name)
	time.Sleep(6 * time.Second)
	for _, release := range []func(){first, givesUp, second, third} {
		release()
	}
	_, _ = one.TryAcquire(ctx, name, locker.WithoutRenewal(), locker.WithTTL(2*time.Second)) // it ends by itself
	time.Sleep(15 * time.Second)
}

// forgotten matches the names, and the IDs that the core makes.
var forgotten = regexp.MustCompile(`forgotten-\d+|\b[a-z2-7]{24}\b`)

// remembered returns which of them can be reached from root within this module, and where one of each is.
func remembered(root any) map[string]string {
	found := make(map[string]string)
	type place struct {
		p unsafe.Pointer
		t reflect.Type
	}
	seen := make(map[place]bool)
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		if !v.IsValid() {
			return
		}
		t := v.Type()
		foreign := t.PkgPath() != "" && !strings.HasPrefix(t.PkgPath(), "github.com/lockerproject/locker")
		switch v.Kind() {
		case reflect.String:
			for _, word := range forgotten.FindAllString(v.String(), -1) {
				found[word] = path
			}
		case reflect.Pointer:
			if v.IsNil() || seen[place{v.UnsafePointer(), t}] {
				return
			}
			seen[place{v.UnsafePointer(), t}] = true
			walk(v.Elem(), path)
		case reflect.Interface:
			walk(v.Elem(), path)
		case reflect.Struct:
			if foreign {
				return
			}
			sim := strings.HasSuffix(t.PkgPath(), "internal/sim")
			if !v.CanAddr() {
				c := reflect.New(t).Elem()
				c.Set(v)
				v = c
			}
			for i := range v.NumField() {
				f := v.Field(i)
				if sim && f.Kind() != reflect.Interface && !strings.Contains(f.Type().String(), "contract") && !strings.Contains(f.Type().String(), "river") {
					continue
				}
				if sim && t.Field(i).Name == "m" {
					continue
				}
				walk(reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem(), path+"."+t.Field(i).Name)
			}
		case reflect.Map:
			for it := v.MapRange(); it.Next(); {
				walk(it.Key(), path+"[key]")
				walk(it.Value(), path+"[]")
			}
		case reflect.Slice, reflect.Array:
			for i := range v.Len() {
				walk(v.Index(i), path+"[]")
			}
		}
	}
	walk(reflect.ValueOf(root), "")
	return found
}
