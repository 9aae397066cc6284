package lockerslog_test

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	lockerslog "github.com/lockerproject/locker/observe/slog"
)

// The audit log of a program. Attributes that change from run to run are left out here.
func ExampleObserver() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "since", "fencing_token", "acquisition", "seconds":
				return slog.Attr{}
			case "held_seconds":
				return slog.Int("held_seconds", int(a.Value.Float64()))
			}
			return a
		},
	}))
	l := locker.New(memory.New(), lockerslog.Observer(logger))
	defer l.Close()
	ctx := context.Background()
	k, _ := l.Acquire(ctx, "order:42", locker.WithOwner("web-1"), locker.WithTTL(time.Minute))
	k.Release(ctx)
	// Output:
	// level=INFO msg="lock acquired" lock=order:42 owner=web-1 store=memory mode=exclusive waited=false
	// level=INFO msg="lock released" lock=order:42 owner=web-1 store=memory mode=exclusive held_seconds=0
}
