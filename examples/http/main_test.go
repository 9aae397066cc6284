package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/lockerproject/locker/lockertest"
)

// In a bubble the waits take no time.
func TestShipping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockertest.New()
		defer l.Close()
		mux := http.NewServeMux()
		ships := ship
		mux.Handle("POST /orders/{id}/ship", shipping(l, func(ctx context.Context, order string) error { return ships(ctx, order) }))
		post := func(what string, want int) {
			t.Helper()
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/42/ship", nil))
			if w.Code != want {
				t.Errorf("%s: %d %s, want %d", what, w.Code, w.Body, want)
			}
		}
		post("free", http.StatusOK)

		rival := l.Join()
		defer rival.Close()
		lock, err := rival.Acquire(t.Context(), "order:42")
		if err != nil {
			t.Fatal(err)
		}
		post("held by another process", http.StatusConflict)
		_ = lock.Release(t.Context())
		post("released", http.StatusOK)

		l.Down()
		post("the store is away", http.StatusServiceUnavailable)
		l.Heal()

		ships = func(ctx context.Context, _ string) error {
			l.Lose("order:42")
			<-ctx.Done()
			return context.Cause(ctx)
		}
		post("lost meanwhile", http.StatusInternalServerError)
		l.AssertFree(t)
	})
}
