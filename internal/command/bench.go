package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
)

// benchFlags are the flags of locker bench.
type benchFlags struct {
	duration time.Duration
	clients  int
}

// benchResult is what locker bench has measured.
type benchResult struct {
	Store       string      `json:"store"` // the URL without user, password and parameters
	Version     string      `json:"version,omitempty"`
	Uncontended uncontended `json:"uncontended"`
	Contended   contended   `json:"contended"`
}

// uncontended is one client on a name of its own.
type uncontended struct {
	Seconds float64 `json:"seconds"`
	Cycles  int     `json:"cycles"` // acquire and release
	Rate    float64 `json:"cycles_per_second"`
	P50     float64 `json:"cycle_p50_seconds"`
	P99     float64 `json:"cycle_p99_seconds"`
}

// contended is several clients on one name.
type contended struct {
	Clients int     `json:"clients"`
	Seconds float64 `json:"seconds"`
	Grants  int     `json:"grants"`
	Rate    float64 `json:"grants_per_second"`
	P50     float64 `json:"handoff_p50_seconds"` // from one client's release to another's grant
	P99     float64 `json:"handoff_p99_seconds"`
	Jain    float64 `json:"jain_index"` // how even the grants are: 1 is even, 1/clients is one client alone
}

func newBench(a *app) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast locks are on this store",
		Long: `Measure locks on your own store, from this machine: half of the time one client acquires
and releases a lock that nobody else wants, the other half several clients, each with
its own connections, compete for one lock.

A cycle is one acquire and one release. A hand-off is the time from one client's
release to another client's grant. Jain's index says how even the grants are: 1 is
even, 1/clients means that one client got all.

The clients send requests as fast as they can. The locks have random names, and
none is left in the store, which keeps what it keeps after any lock. The figures depend
on this machine, its network and its load: compare runs from the same machine.`,
		Example: `  locker bench
  locker bench --duration 1m --clients 4 --json`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.duration < 100*time.Millisecond {
				return usage(fmt.Errorf("--duration %v: want at least 100ms", f.duration))
			}
			if f.clients < 2 || f.clients > 1000 {
				return usage(fmt.Errorf("--clients %d: want 2 to 1000", f.clients))
			}
			r, err := a.bench(cmd.Context(), f)
			if err != nil {
				return err
			}
			a.print(r, r.write)
			return nil
		},
	}
	f.duration = 10 * time.Second
	addDuration(cmd.Flags(), &f.duration, "duration", "", "measure for this `DURATION`")
	cmd.Flags().IntVar(&f.clients, "clients", 16, "`N` clients want the same lock")
	return cmd
}

func (a *app) bench(ctx context.Context, f benchFlags) (r benchResult, err error) {
	raw, err := a.storeURL()
	if err != nil {
		return r, err
	}
	if r.Store, err = a.storeName(); err != nil {
		return r, err
	}
	c, err := openURL(ctx, raw)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Ping(ctx); err != nil { // before anything is loaded
		return r, err
	}
	r.Version, _ = c.ServerVersion(ctx)
	if isTerminal(a.Err) {
		a.say("measuring for %v", f.duration)
	}
	half := f.duration / 2
	if r.Uncontended, err = measureAlone(ctx, c, half); err != nil {
		return r, err
	}
	all := []*locker.Client{c}
	var closing errgroup.Group
	defer func() { _ = closing.Wait() }()
	for len(all) < f.clients {
		other, err := openURL(ctx, raw)
		if err != nil {
			return r, err
		}
		defer closing.Go(other.Close) // all at once
		all = append(all, other)
	}
	r.Contended, err = measureContended(ctx, all, half)
	return r, err
}

func (r benchResult) write(w io.Writer) {
	version := ""
	if r.Version != "" {
		version = " (" + printable(r.Version) + ")"
	}
	fmt.Fprintf(w, "%s%s\n\n", r.Store, version)
	u, c := r.Uncontended, r.Contended
	writeTable(w, []string{"", "CLIENTS", "RATE", "P50", "P99", "JAIN"}, [][]string{
		{"uncontended", "1", fmt.Sprintf("%.0f cycles/s", u.Rate), precise(u.P50) + " a cycle", precise(u.P99), ""},
		{
			"contended", fmt.Sprint(c.Clients), fmt.Sprintf("%.0f grants/s", c.Rate),
			precise(c.P50) + " a hand-off", precise(c.P99), fmt.Sprintf("%.3f", c.Jain),
		},
	})
}
