package compose_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver/memory"
)

// versioned is a store that reports a version, or does not answer if it is empty.
type versioned struct {
	*memory.Driver
	version string
}

func (v versioned) ServerVersion(ctx context.Context) (string, error) {
	if v.version == "" {
		<-ctx.Done()
	}
	return v.version, ctx.Err()
}

// A store that does not answer leaves the others the time to report their version.
func TestServerVersionBesideASilentStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := compose.All(versioned{memory.New(), ""}, versioned{memory.New(), "A 1"}, versioned{memory.New(), "B 2"})
		defer m.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := m.ServerVersion(ctx); got != "A 1, B 2" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}
