package browsertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/console"
	"github.com/lockerproject/locker/internal/testbed"
)

// open opens a store, and closes it with the test.
func open(tb testing.TB, url string) *locker.Client {
	tb.Helper()
	c, err := locker.Open(context.Background(), url, locker.WithReleaseTimeout(time.Second))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() }) // of a store that a test has killed it is an error
	return c
}

func acquire(tb testing.TB, c *locker.Client, name string, opts ...locker.Option) *locker.Lock {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	l, err := c.Acquire(ctx, name, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// prefixed is a store of a test's own on the shared Redis.
func prefixed(tb testing.TB, prefix string) string {
	tb.Helper()
	return testbed.SharedRedis(tb).URL() + "?prefix=" + prefix
}

func TestRefusesWithoutTheToken(t *testing.T) {
	t.Parallel()
	c := open(t, prefixed(t, "refuses"))
	acquire(t, c, "secret/lock")
	url := serve(t, console.Options{}, console.Store{Name: "redis", Source: c})
	page := newTab(t)
	page.do(chromedp.Navigate(url+"/#/0/secret%2Flock"), chromedp.WaitVisible(chromedp.CSS("#token")))
	if eval[bool](page, `document.body.innerText.includes("secret")`) {
		t.Error("the page shows a lock to who has not logged in")
	}
	page.do(chromedp.SendKeys(chromedp.CSS("#token"), "not the token at all\r"))
	page.shows("#refusal", "not the token")
	if got := eval[int](page, `fetch("/api/events").then(a => a.status)`, chromedp.EvalAwaitPromise); got != 401 {
		t.Errorf("the stream without a session: %d", got)
	}
	page.silent("401")
	page.do(chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"))
	page.shows("h1", "secret/lock") // the lock that was asked for in the first place
	if got := eval[string](page, `document.cookie + location.href + JSON.stringify(localStorage)`); got != url+"/#/0/secret%2Flock{}" {
		t.Errorf("scripts and the address bar know %q", got)
	}
	page.do(chromedp.Click(chromedp.CSS("#logout")))
	page.wait(`location.pathname === "/login"`)
	page.silent("401")
}

func TestUpdatesLive(t *testing.T) {
	t.Parallel()
	c := open(t, prefixed(t, "live"))
	url := serve(t, console.Options{}, console.Store{Name: "redis", Source: c})
	page := newTab(t)
	page.login(url)
	page.shows("#empty", "Nobody holds a lock")
	odd := "a/b \u202e<b>&\n" + `"x"`
	first := acquire(t, c, odd, locker.WithOwner("first owner"), locker.WithNote("the note"))
	page.shows(".row .lockname", `a/b \u{202e}<b>&\u{a}"x"`)
	page.shows(".row .owner", "first owner")
	page.shows(".row .sub", "the note")

	var waiter sync.WaitGroup
	waiter.Go(func() {
		second := acquire(t, c, odd, locker.WithOwner("second owner"), locker.WithoutReentry())
		page.shows("tr.holder .owner", "second owner")
		_ = second.Release(context.Background())
	})
	page.shows(".row .waiters", "1")
	page.do(chromedp.Click(chromedp.CSS(".row:not([hidden]) .lockname")))
	page.shows("h1", "a/b")
	page.shows(".state", "1 waiter")
	page.shows("td", "waits")
	page.shows("#lock .lease", "s")
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiter.Wait()
	page.shows(".state", "free")
	page.wait(`[...document.querySelectorAll(".events .what")].map(e => e.innerText).join() === "released,granted,released,queued,granted"`)
	if n := eval[int](page, `document.querySelectorAll(".action button").length`); n != 0 {
		t.Errorf("a read-only page has %d buttons to break locks", n)
	}
	page.silent()
}

func TestBreaksALock(t *testing.T) {
	t.Parallel()
	c := open(t, prefixed(t, "breaks"))
	url := serve(t, console.Options{AllowBreak: true}, console.Store{Name: "redis", Source: c})
	page := newTab(t)
	page.login(url + "/#/0/job")
	lock := acquire(t, c, "job", locker.WithOwner("the victim"), locker.WithTTL(4*time.Second))
	page.shows(".owner", "the victim")
	open := func() {
		t.Helper()
		page.do(chromedp.Click(chromedp.CSS("td.action button")), chromedp.WaitVisible(chromedp.CSS("dialog[open]")))
		page.shows("dialog[open] dd", "the victim")
	}
	open()
	if got := eval[string](page, `document.activeElement.innerText`); got != "Cancel" {
		t.Errorf("the dialog's focus is on %q", got)
	}
	page.do(chromedp.KeyEvent(kb.Escape))
	page.wait(`!document.querySelector("dialog[open]")`)
	if err := lock.Err(); err != nil {
		t.Fatalf("after the first step: %v", err)
	}
	open()
	page.do(chromedp.Click(chromedp.CSS("dialog .danger-solid")))
	page.wait(`!document.querySelector("dialog[open]")`)
	page.shows(".state", "free")
	page.shows(".events .what", "broken here")
	<-lock.Done()
	if err := lock.Err(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("the broken lock's error is %v", err)
	}
	page.silent()
}

func TestSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults(), testbed.Durable())
	watched := open(t, srv.URL())
	other := open(t, prefixed(t, "beside"))
	acquire(t, open(t, srv.URL()), "job", locker.WithOwner("some owner"), locker.WithTTL(time.Minute))
	acquire(t, other, "unharmed")
	url := serve(t, console.Options{}, console.Store{Name: "the redis that goes", Source: watched}, console.Store{Name: "other", Source: other})
	page := newTab(t)
	page.login(url)
	page.shows(".row .owner", "some owner")
	srv.Kill()
	page.shows(".banner", "the redis that goes does not answer.")
	page.shows(".banner", "as they were at")
	page.wait(`document.querySelectorAll(".row.stale:not([hidden])").length === 1`)
	page.shows(".row.stale .owner", "some owner")
	page.shows(".row:not(.stale) .lockname", "unharmed")
	page.shows("#live", "1 of 2 stores live")
	page.do(chromedp.Click(chromedp.CSS(".row.stale .lockname")))
	page.shows("#lock.stale .owner", "some owner")
	srv.Start()
	page.wait(`!document.querySelector(".banner")`)
	page.wait(`![...document.querySelectorAll(".stale")].some(e => e.offsetParent)`)
	page.silent()
}

func TestSurvivesTheConsole(t *testing.T) {
	t.Parallel()
	c := open(t, prefixed(t, "restart"))
	acquire(t, c, "job")
	handler := newHandler(t, console.Options{}, console.Store{Name: "redis", Source: c})
	// A port of the testbed's: nobody else gets it while the console is down.
	addr, stop := listen(t, handler, fmt.Sprintf("127.0.0.1:%d", testbed.Port(t)))
	page := newTab(t)
	page.login("http://" + addr)
	page.shows(".row .lockname", "job")
	stop()
	page.shows(".banner", "The console does not answer.")
	page.shows(".row.stale .lockname", "job")
	_, stop = listen(t, handler, addr)
	page.wait(`!document.querySelector(".banner")`)
	page.shows(".row:not(.stale) .lockname", "job")
	stop()
	page.shows(".banner", "The console does not answer.")
	listen(t, newHandler(t, console.Options{}, console.Store{Name: "redis", Source: c}), addr) // has no sessions
	page.wait(`location.pathname === "/login"`)
	page.silent("ERR_", "401")
}

// TestThousandQueues: the page holds the rows that are seen, and stays quick.
func TestThousandQueues(t *testing.T) {
	const n = 1000
	c := open(t, prefixed(t, "many"))
	var all sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			acquire(t, c, fmt.Sprintf("queue/%04d", i), locker.WithOwner(fmt.Sprintf("owner-%d", i%10)))
		})
	}
	all.Wait()
	url := serve(t, console.Options{}, console.Store{Name: "redis", Source: c})
	page := newTab(t)
	page.login(url)
	page.shows("#count", "1,000 locks")
	page.shows(".row .lockname", "queue/0000")
	if rows := eval[int](page, `document.querySelectorAll(".row").length`); rows > 60 {
		t.Errorf("%d rows are in the page", rows)
	}
	// A key of chromedp's types its character although the page has taken it.
	eval[bool](page, `document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true}))`)
	page.wait(`document.activeElement.id === "filter"`)
	page.do(chromedp.SendKeys(chromedp.CSS("#filter"), "QUEUE owner-7"))
	page.shows("#count", "100 of 1,000 locks")
	page.do(chromedp.KeyEvent(kb.Escape))
	page.shows("#count", "1,000 locks")
	page.do(chromedp.KeyEvent(kb.End))
	page.shows(".row[aria-selected=true] .lockname", "queue/0999")
	page.do(chromedp.KeyEvent("k"), chromedp.KeyEvent(kb.Enter))
	page.shows("h1", "queue/0998")
	page.do(chromedp.KeyEvent(kb.Escape))
	page.shows(".row[aria-selected=true] .lockname", "queue/0998")
	last := acquire(t, c, "queue/1000")
	page.shows("#count", "1,001 locks")
	_ = last.Release(context.Background())
	measure(t, page)
	page.silent()
}

// measure reports what the page costs at 1,000 queues.
func measure(t *testing.T, page *tab) {
	t.Helper()
	const script = `(async () => {
		const grid = document.getElementById("grid"), took = [];
		let longest = 0;
		new PerformanceObserver(l => l.getEntries().forEach(e => longest = Math.max(longest, e.duration))).observe({type: "longtask"});
		for (let i = 0; i < 60; i++) {
			const t = performance.now();
			grid.scrollTop = i * 700;
			grid.dispatchEvent(new Event("scroll"));
			took.push(performance.now() - t);
			await new Promise(requestAnimationFrame);
		}
		const filter = document.getElementById("filter"), t = performance.now();
		filter.value = "owner-3";
		filter.dispatchEvent(new Event("input"));
		const filtered = performance.now() - t;
		took.sort((a, b) => a - b);
		return "a screen of scrolling " + took[30].toFixed(1) + " ms (slowest " + took[59].toFixed(1) + "), the filter " + filtered.toFixed(1) +
			" ms, longest task " + longest.toFixed(0) + " ms, " + document.querySelectorAll("*").length + " elements, heap " + (performance.memory.usedJSHeapSize / 1e6).toFixed(1) + " MB";
	})()`
	t.Log(eval[string](page, script, chromedp.EvalAwaitPromise))
}
