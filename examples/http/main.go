// Http is a server that ships each order by one request at a time: 200 when it is shipped,
// 409 while another request ships it, 503 while the store of the locks is away.
//
//	go run ./examples/http &
//	curl -X POST localhost:8080/orders/42/ship
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
)

func main() {
	if err := serve(os.Getenv("LOCKER_URL"), "localhost:8080"); err != nil {
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(1)
	}
}

func serve(url, address string) error {
	if url == "" {
		url = "memory://"
	}
	l, err := locker.Open(context.Background(), url)
	if err != nil {
		return err
	}
	defer l.Close()
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/ship", shipping(l, ship))
	server := http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return server.ListenAndServe()
}

// shipping handles the request to ship an order. It takes a locker.Locker, so that its test can
// hand in one of package lockertest.
func shipping(l locker.Locker, ship func(ctx context.Context, order string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		order := r.PathValue("id")
		err := locker.Do(r.Context(), l, "order:"+order, func(ctx context.Context) error {
			return ship(ctx, order) // ctx ends if the lock is lost
		}, locker.WithWait(time.Second))
		if err != nil {
			status, text := answer(err)
			http.Error(w, text, status)
			return
		}
		fmt.Fprintf(w, "order %s is shipped\n", order)
	}
}

// answer returns the status and the text for an error of Do.
func answer(err error) (status int, text string) {
	switch {
	case errors.Is(err, locker.ErrUnavailable):
		return http.StatusServiceUnavailable, "the store of the locks is away: try again"
	case errors.Is(err, locker.ErrNotAcquired):
		return http.StatusConflict, "another request ships this order"
	case errors.Is(err, locker.ErrLost): // see locker.DoError
		return http.StatusInternalServerError, "another request may have shipped it, too: look before you try again"
	}
	return http.StatusInternalServerError, err.Error()
}

// ship stands for the work.
func ship(ctx context.Context, _ string) error {
	select {
	case <-time.After(200 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
