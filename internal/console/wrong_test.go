package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// heldBody is a request's body that arrives when all others do.
type heldBody struct {
	*strings.Reader
	begun *sync.WaitGroup
	open  <-chan struct{}
	once  sync.Once
}

func (b *heldBody) Read(p []byte) (int, error) {
	b.once.Do(b.begun.Done)
	<-b.open
	return b.Reader.Read(p)
}

// Tries that are sent at once are counted as those that follow each other.
func TestWrongTokensAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	const all = 5 * freeTries
	var begun, done sync.WaitGroup
	open := make(chan struct{})
	answers := make(chan string, all)
	begun.Add(all)
	for range all {
		done.Go(func() {
			body := &heldBody{Reader: strings.NewReader("token=wrong"), begun: &begun, open: open}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/login", body)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			b.con.ServeHTTP(w, r)
			answers <- w.Header().Get("Location")
		})
	}
	begun.Wait()
	close(open)
	done.Wait()
	close(answers)
	tried := 0
	for to := range answers {
		if to == "/login?refused" {
			tried++
		}
	}
	if tried != freeTries {
		t.Errorf("%d wrong tokens were tried at once, want %d", tried, freeTries)
	}
}
