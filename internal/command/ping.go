package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/figures"
)

// health is what locker ping finds out.
type health struct {
	Store    string  `json:"store"`             // the URL without user, password and parameters
	Up       bool    `json:"up"`                // it answers
	Version  string  `json:"version,omitempty"` // as the store reports it; not all do
	Rights   bool    `json:"rights"`            // they suffice to acquire and release
	First    float64 `json:"first_seconds"`     // the first request, with connecting
	Cycles   int     `json:"cycles"`
	CycleP50 float64 `json:"cycle_p50_seconds,omitempty"` // acquire and release
	CycleMax float64 `json:"cycle_max_seconds,omitempty"`
}

func newPing(a *app) *cobra.Command {
	cycles := 0
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Check whether the store is up, and whether the rights suffice",
		Long: `Check whether the store answers, which version it is, whether the rights of the URL's
user suffice to acquire and release, and how long that takes: some locks with random
names are acquired and released, one after the other.

A store that does not answer is exit code 69, one that refuses is 77.`,
		Example: `  locker ping
  until locker ping --cycles 0; do sleep 1; done`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cycles < 0 {
				return usage(fmt.Errorf("--cycles %d: want 0 or more", cycles))
			}
			var h health
			c, failure := a.open(cmd.Context())
			switch {
			case failure == nil:
				defer c.Close()
				h, failure = checkHealth(cmd.Context(), c, cycles)
			case exitCode(failure) == ExitRefused: // which some drivers find out when they are opened
				h.Up = true
			case exitCode(failure) != ExitUnavailable:
				return failure
			}
			if cmd.Context().Err() != nil { // it has found out nothing
				return failure
			}
			var err error
			if h.Store, err = a.storeName(); err != nil {
				return err
			}
			a.print(h, h.write)
			return failure
		},
	}
	cmd.Flags().IntVar(&cycles, "cycles", 10, "acquire and release `N` locks; 0 changes nothing in the store")
	return cmd
}

// checkHealth finds out as much as it can, and returns the first error.
func checkHealth(ctx context.Context, c *locker.Client, cycles int) (h health, err error) {
	begun := time.Now()
	err = c.Ping(ctx)
	h.First = seconds(time.Since(begun))
	h.Up = !errors.Is(err, locker.ErrUnavailable)
	if !h.Up {
		return h, err
	}
	h.Version, _ = c.ServerVersion(ctx) // it may need a right that locks do not
	if err != nil {
		return h, err
	}
	took, err := timeCycles(ctx, c, cycles)
	if err != nil {
		h.Up = !errors.Is(err, locker.ErrUnavailable)
		return h, err
	}
	h.Rights, h.Cycles = true, cycles
	if cycles > 0 {
		h.CycleP50, h.CycleMax = seconds(figures.Percentile(took, 50)), seconds(figures.Percentile(took, 100))
	}
	return h, nil
}

// timeCycles acquires and releases locks of random names.
func timeCycles(ctx context.Context, c *locker.Client, n int) ([]time.Duration, error) {
	var took []time.Duration
	for range n {
		begun := time.Now()
		k, err := c.Acquire(ctx, "locker ping "+rand.Text())
		if err == nil {
			err = k.Release(ctx)
		}
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(begun))
	}
	return took, nil
}

// precise is a time that was measured, for people.
func precise(seconds float64) string {
	return figures.Round(time.Duration(seconds * float64(time.Second))).String()
}

func (h health) write(w io.Writer) {
	yes, no := paint(w, green, "yes"), paint(w, red, "no")
	line := func(what, text string) { fmt.Fprintf(w, "%-9s%s\n", what, text) }
	line("store", h.Store)
	if !h.Up {
		line("answers", no)
		return
	}
	line("answers", fmt.Sprintf("%s, the first time after %s", yes, precise(h.First)))
	if h.Version != "" {
		line("version", printable(h.Version))
	} else {
		line("version", "not reported")
	}
	if !h.Rights {
		line("rights", no)
		return
	}
	line("rights", yes)
	if h.Cycles > 0 {
		line("cycle", fmt.Sprintf("%s to acquire and release (median of %d, longest %s)",
			precise(h.CycleP50), h.Cycles, precise(h.CycleMax)))
	}
}
