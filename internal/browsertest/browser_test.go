package browsertest

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/lockerproject/locker/internal/console"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	stopBrowser()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const (
	token  = "the token of these tests"
	within = 30 * time.Second // for anything to appear
)

// chromium is one browser for all tests, started by the first.
var chromium struct {
	once sync.Once
	ctx  context.Context
	err  error
	stop []func()
}

func stopBrowser() {
	for _, stop := range chromium.stop {
		stop()
	}
}

func startBrowser() {
	chromium.once.Do(func() {
		path, err := exec.LookPath("chromium")
		if err != nil {
			chromium.err = err
			return
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1440, 900))
		alloc, stopAlloc := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, stop := chromedp.NewContext(alloc)
		chromium.ctx = ctx
		chromium.stop = []func(){func() { _ = chromedp.Cancel(ctx) }, stop, stopAlloc}
		chromium.err = chromedp.Do(ctx)
	})
}

// tab is a page in a browser profile of its own, and what its console said.
type tab struct {
	ctx context.Context
	tb  testing.TB

	mu   sync.Mutex
	said []string
}

func newTab(tb testing.TB) *tab {
	tb.Helper()
	startBrowser()
	if chromium.err != nil {
		testbed.Lacks(tb, "no Chromium: scripts/install-servers.sh chromium ("+chromium.err.Error()+")")
	}
	ctx, stop := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	t := &tab{ctx: ctx, tb: tb}
	messages := chromedp.Console(ctx)
	var reader sync.WaitGroup
	reader.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			t.mu.Lock()
			t.said = append(t.said, m.String())
			t.mu.Unlock()
		}
	})
	tb.Cleanup(func() {
		stop()
		reader.Wait()
	})
	return t
}

// silent fails the test if the page's console said anything that does not contain
// one of the texts.
func (t *tab) silent(but ...string) {
	t.tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
next:
	for _, line := range t.said {
		for _, b := range but {
			if strings.Contains(line, b) {
				continue next
			}
		}
		t.tb.Errorf("the browser's console says %q", line)
	}
}

func (t *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, within)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.tb.Fatal(err)
	}
}

// eval evaluates an expression.
func eval[T any](t *tab, expression string, opts ...chromedp.EvaluateOption) T {
	t.tb.Helper()
	v, err := chromedp.Run(t.ctx, chromedp.Evaluate[T](expression, opts...))
	if err != nil {
		t.tb.Fatal(err)
	}
	return v
}

// wait waits until an expression is true, also on a page that is still to come.
func (t *tab) wait(expression string) {
	t.tb.Helper()
	var ok bool
	var err error
	for until := time.Now().Add(within); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if ok, err = chromedp.Run(t.ctx, chromedp.Evaluate[bool]("!!("+expression+")")); ok {
			return
		}
	}
	text, _ := chromedp.Run(t.ctx, chromedp.Evaluate[string](`document.body.innerText`))
	t.tb.Fatalf("waiting for %s: %v; the page says:\n%s", expression, err, text)
}

// shows waits until an element's text contains a text.
func (t *tab) shows(selector, text string) {
	t.tb.Helper()
	t.wait(fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.offsetParent && e.innerText.includes(%q))`, selector, text))
}

func (t *tab) login(url string) {
	t.tb.Helper()
	t.do(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("#token")), chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"))
	t.wait(`document.body?.classList.contains("ready")`)
}

// serve starts a console on a port of its own, and returns its URL.
func serve(tb testing.TB, o console.Options, stores ...console.Store) string {
	tb.Helper()
	addr, _ := listen(tb, newHandler(tb, o, stores...), "127.0.0.1:0")
	return "http://" + addr
}

func newHandler(tb testing.TB, o console.Options, stores ...console.Store) http.Handler {
	tb.Helper()
	o.Token = token
	if o.Every == 0 {
		o.Every = console.MinEvery
	}
	c, err := console.New(stores, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// listen serves a console until stop is called or the test ends.
func listen(tb testing.TB, handler http.Handler, addr string) (at string, stop func()) {
	tb.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: within}
	var served sync.WaitGroup
	served.Go(func() { _ = srv.Serve(ln) })
	stop = func() {
		_ = srv.Close()
		served.Wait()
	}
	tb.Cleanup(stop)
	return ln.Addr().String(), stop
}
