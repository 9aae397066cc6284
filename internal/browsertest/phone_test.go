package browsertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/console"
)

// wide lists the elements that reach beyond the right edge, but not those that scroll by
// themselves, and how wide the page is.
const wide = `(() => {
	const edge = document.documentElement.clientWidth, bad = [];
	if (document.documentElement.scrollWidth <= edge && innerWidth <= screen.width) return "";
	for (const e of document.querySelectorAll("body *")) {
		if (e.getBoundingClientRect().right > edge + 1 && !e.closest(".scroll, .grid, #stores, .sr, .skip")) bad.push(e.tagName + "." + e.getAttribute("class"));
	}
	return document.documentElement.scrollWidth + " of " + edge + ", " + innerWidth + " of " + screen.width + ": " + bad.join(" ");
})()`

// TestFitsAPhone: who is on call has a phone. Nothing but tables is wider than its screen.
func TestFitsAPhone(t *testing.T) {
	t.Parallel()
	etcd := clusters()
	url := serve(t, console.Options{AllowBreak: true},
		console.Store{Name: "redis://payments-redis:6379", Source: payments()},
		console.Store{Name: "etcd://etcd-1:2379,etcd-2:2379,etcd-3:2379", Source: etcd})
	page := newTab(t)
	page.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	page.do(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("#token")))
	check := func(view string) {
		t.Helper()
		if bad := eval[string](page, wide); bad != "" {
			t.Errorf("%s: %s", view, bad)
		}
	}
	check("login")
	page.login(url)
	page.shows(".row .lockname", "ledger/close-of-day")
	check("list")
	eval[string](page, `location.hash = "#/0/ledger%2Fclose-of-day"`)
	page.shows("tr.holder .owner", "batch-07")
	page.wait(`document.querySelector(".events") && document.querySelector("#lock .muted:last-child").innerText`)
	check("lock")
	etcd.down.Store(true)
	page.shows(".banner", "does not answer")
	check("outage")
	page.do(chromedp.Click(chromedp.CSS("td.action button")), chromedp.WaitVisible(chromedp.CSS("dialog[open]")))
	check("break")
	eval[string](page, `document.querySelector("dialog[open]").close() ?? ""`)
	page.do(chromedp.Click(chromedp.CSS("#live")), chromedp.WaitVisible(chromedp.CSS("#health[open]")))
	check("health")
	page.silent("Autofocus")
}

// cannotList is a store as Memcached is one.
type cannotList struct{ *fleet }

func (cannotList) List(context.Context) ([]string, error) {
	return nil, fmt.Errorf("list: %w", locker.ErrUnsupported)
}

// TestStoreWithoutAList: a store that cannot list its locks is no failure. The others are live.
func TestStoreWithoutAList(t *testing.T) {
	t.Parallel()
	url := serve(t, console.Options{}, console.Store{Name: "redis", Source: payments()}, console.Store{Name: "memcached", Source: cannotList{clusters()}})
	page := newTab(t)
	page.login(url)
	page.shows(".banner.note", "memcached cannot list its locks")
	page.wait(`document.getElementById("live").innerText === "live" && !document.getElementById("live").classList.contains("off")`)
	if got := eval[bool](page, `getComputedStyle(document.querySelector(".tab.unsupported .dot")).backgroundColor === getComputedStyle(document.querySelector(".muted")).color`); !got {
		t.Error("its mark has the colour of a failure")
	}
	page.silent()
}

// TestUnwatchedTimeIsGrey: the charts do not draw zero where nobody looked.
func TestUnwatchedTimeIsGrey(t *testing.T) {
	t.Parallel()
	url := serve(t, console.Options{}, console.Store{Name: "redis", Source: payments()})
	page := newTab(t)
	page.login(url)
	page.shows(".row .lockname", "ledger/close-of-day")
	for _, chart := range []string{".figure.rate .spark .unseen", ".row .spark .unseen"} {
		if n := eval[int](page, fmt.Sprintf(`(document.querySelector(%q).getAttribute("d") ?? "").split("M").length - 1`, chart)); n < 40 || n > 59 {
			t.Errorf("%s: %d of 60 bars are of unwatched time", chart, n)
		}
	}
	page.silent()
}
