// Telemetry: a program whose locks Prometheus watches, and that logs who held what.
//
//	cd examples/telemetry
//	go run .                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run .    # on Redis
//
// Workers take turns at a few locks until the program is interrupted. Every ten seconds an
// operator takes a lock away from its holder, so that there is a loss to see. The metrics
// are at http://localhost:2112/metrics: deploy/ has the rules and the dashboard that
// show them.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/memory" // memory://
	_ "github.com/lockerproject/locker/driver/redis"  // redis://
	lockerotel "github.com/lockerproject/locker/observe/otel"
	lockerslog "github.com/lockerproject/locker/observe/slog"
)

func main() {
	listen := flag.String("listen", "localhost:2112", "address of the metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	audit := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(ctx, cmp.Or(os.Getenv("LOCKER_URL"), "memory://"), *listen, audit); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves metrics and works until ctx ends.
func run(ctx context.Context, url, listen string, audit *slog.Logger) error {
	metrics, handler, err := newMetrics()
	if err != nil {
		return err
	}
	stop, err := serve(ctx, listen, handler)
	if err != nil {
		return err
	}
	defer stop()
	l, err := open(ctx, url, metrics, audit)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // nothing is held any more
	queues, err := lockerotel.ObserveQueues(l, []string{"order:0"}, lockerotel.WithMeterProvider(metrics))
	if err != nil {
		return err
	}
	defer func() { _ = queues.Unregister() }()
	work(ctx, l)
	return nil
}

// newMetrics returns where metrics are recorded, and what shows them to Prometheus. A
// program that has a provider already needs none of this.
func newMetrics() (*sdkmetric.MeterProvider, http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, nil, err
	}
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

// open is all that a program needs for telemetry: two options.
func open(ctx context.Context, url string, metrics *sdkmetric.MeterProvider, audit *slog.Logger) (*locker.Client, error) {
	return locker.Open(ctx, url,
		lockerotel.Observer(lockerotel.WithMeterProvider(metrics), lockerotel.WithLockClass(class)),
		lockerslog.Observer(audit),
	)
}

// class of a lock is what comes before the colon of its name.
func class(name string) string {
	before, _, _ := strings.Cut(name, ":")
	return before
}

// serve serves the metrics until stop is called.
func serve(ctx context.Context, listen string, handler http.Handler) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(listener) })
	return func() {
		_ = server.Close()
		group.Wait()
	}, nil
}

// work has workers take turns, and an operator take locks away, until ctx ends.
func work(ctx context.Context, l *locker.Client) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				name := fmt.Sprintf("order:%d", rand.IntN(3))
				err := locker.Do(ctx, l, name, ship, locker.WithTTL(3*time.Second), locker.WithWait(time.Second))
				if errors.Is(err, locker.ErrUnavailable) {
					sleep(ctx, time.Second)
				}
			}
		})
	}
	group.Go(func() {
		for sleep(ctx, 10*time.Second) {
			breakOne(ctx, l, "order:0")
		}
	})
	group.Wait()
}

// ship is the work under the lock.
func ship(ctx context.Context) error {
	sleep(ctx, rand.N(200*time.Millisecond))
	return ctx.Err()
}

// breakOne takes the lock away from its holder, if it has one.
func breakOne(ctx context.Context, l *locker.Client, name string) {
	q, err := l.Inspect(ctx, name)
	if err == nil && len(q.Tickets) > 0 {
		_ = l.Break(ctx, name, q.Tickets[0].Token)
	}
}

// sleep reports whether ctx is still alive after d.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
