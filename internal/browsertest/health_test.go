package browsertest

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/lockerproject/locker/internal/console"
)

// versioned is a store that tells its version.
type versioned struct{ *fleet }

func (versioned) ServerVersion(context.Context) (string, error) { return "Redis 7.0.15", nil }

// TestHealth: the word in the header tells more on request, and goes on telling while it is shown.
func TestHealth(t *testing.T) {
	t.Parallel()
	etcd := clusters()
	url := serve(t, console.Options{}, console.Store{Name: "redis", Source: versioned{payments()}},
		console.Store{Name: "etcd", Source: etcd}, console.Store{Name: "memcached", Source: cannotList{clusters()}})
	page := newTab(t)
	page.login(url)
	page.shows("#live", "live")
	page.do(chromedp.Click(chromedp.CSS("#live")), chromedp.WaitVisible(chromedp.CSS("#health[open]")))
	page.shows("#health dd", "Redis 7.0.15")
	page.shows("#health dd", "it cannot list its locks")
	page.wait(`document.querySelectorAll("#health dd")[3].innerText === "yes"`)
	page.shows("#health dd", " ms, asked again after ")
	etcd.down.Store(true)
	page.wait(`document.querySelectorAll("#health dd")[3].innerText.startsWith("not since ")`)
	etcd.down.Store(false)
	page.wait(`document.querySelectorAll("#health dd")[3].innerText === "yes"`)
	page.do(chromedp.KeyEvent(kb.Escape))
	page.wait(`!document.querySelector("dialog[open]")`)
	page.do(chromedp.KeyEvent("s"), chromedp.WaitVisible(chromedp.CSS("#health[open]")))
	page.silent()
}

// TestReadersSeeNoBreaks: with the second token the page of a lock has no button, and no column of buttons is filled.
func TestReadersSeeNoBreaks(t *testing.T) {
	t.Parallel()
	const read = "only looking, thank you"
	url := serve(t, console.Options{AllowBreak: true, ReadToken: read}, console.Store{Name: "redis", Source: payments()})
	page := newTab(t)
	page.do(chromedp.Navigate(url+"/#/0/ledger%2Fclose-of-day"), chromedp.WaitVisible(chromedp.CSS("#token")),
		chromedp.SendKeys(chromedp.CSS("#token"), read), chromedp.SendKeys(chromedp.CSS("#who"), "Ada\r"))
	page.shows("tr.holder .owner", "batch-07")
	if n := eval[int](page, `document.querySelectorAll("td.action button").length`); n != 0 {
		t.Errorf("the page offers %d breaks", n)
	}
	page.silent()
}
