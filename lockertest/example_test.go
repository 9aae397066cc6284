package lockertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/lockertest"
)

// shipping is the code under test: one order is shipped by one at a time.
func shipping(l locker.Locker, ship func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := "order:" + r.FormValue("id")
		err := locker.Do(r.Context(), l, name, ship, locker.WithWait(0))
		switch {
		case errors.Is(err, locker.ErrUnavailable):
			http.Error(w, "try again soon", http.StatusServiceUnavailable)
		case errors.Is(err, locker.ErrNotAcquired):
			http.Error(w, "the order is being shipped", http.StatusConflict)
		case errors.Is(err, locker.ErrLost):
			http.Error(w, "it is not known what was shipped", http.StatusInternalServerError)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}
}

func Example() {
	l := lockertest.New()
	defer l.Close()

	ship := func(context.Context) error { return nil }
	post := func(what string) {
		w := httptest.NewRecorder()
		shipping(l, ship)(w, httptest.NewRequest(http.MethodPost, "/ship?id=42", nil))
		fmt.Printf("%s: %d\n", what, w.Code)
	}
	post("free")

	rival := l.Join()
	defer rival.Close()
	lock, _ := rival.Acquire(context.Background(), "order:42")
	post("held by somebody else")
	lock.Release(context.Background())

	l.Down()
	post("store down")
	l.Heal()

	ship = func(ctx context.Context) error {
		l.Lose("order:42")
		<-ctx.Done() // ends with the lock
		return context.Cause(ctx)
	}
	post("lost while shipping")

	for _, g := range l.Grants("order:42") {
		fmt.Println("by the rival:", g.Owner == lock.Owner(), "lost:", g.Lost)
	}
	// Output:
	// free: 200
	// held by somebody else: 409
	// store down: 503
	// lost while shipping: 500
	// by the rival: false lost: false
	// by the rival: true lost: false
	// by the rival: false lost: true
}
