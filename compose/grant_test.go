package compose_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// granting changes the grants of a store.
type granting struct {
	driver.Driver
	change func(g *driver.Grant)
}

func (g granting) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	got, err := g.Driver.Acquire(ctx, r)
	g.change(&got)
	return got, err
}

// The lease of All counts from the oldest of its parts, and is as short as the shortest, whichever store gives that. The token is
// the authority's.
func TestAllGrantsTheLeastOfItsParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		now, degraded := time.Now(), errors.New("degraded")
		stores := [2]granting{
			{memory.New(), func(g *driver.Grant) { g.Asked, g.TTL, g.Token = now.Add(-2*time.Second), 40*time.Second, 7 }},
			{memory.New(), func(g *driver.Grant) {
				g.Asked, g.TTL, g.Claim, g.Token, g.Degraded = now, 20*time.Second, 4*time.Second, 5, degraded
			}},
		}
		for first, second := range []int{1, 0} {
			d := compose.All(stores[first], stores[second])
			r := driver.Request{Name: "x", ID: "1", TTL: 60 * time.Second, Renewed: true, Wait: true}
			g, err := d.Acquire(t.Context(), r)
			want := driver.Grant{Asked: now.Add(-2 * time.Second), TTL: 20 * time.Second, Claim: 4 * time.Second, Degraded: degraded, Token: 7}
			if second == 1 {
				want.Token = 5
			}
			if err != nil || g != want {
				t.Errorf("the older grant on store %d: %+v, %v; want %+v", 1+first, g, err, want)
			}
			if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
				t.Error(err)
			}
		}
	})
}
