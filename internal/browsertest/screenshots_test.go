package browsertest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/lockerproject/locker/internal/console"
)

var (
	screenshots    = flag.String("screenshots", "", "write the documentation's screenshots into this `folder`")
	allScreenshots = flag.Bool("all-screenshots", false, "with -screenshots: of dialogs and the other views, too")
	settle         = flag.Duration("settle", 130*time.Second, "with -screenshots: how long to watch first, for the sparklines")
)

// TestScreenshots makes the pictures of the documentation.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("-screenshots is not given")
	}
	etcd := clusters()
	url := serve(t, console.Options{AllowBreak: true, Every: 500 * time.Millisecond},
		console.Store{Name: "redis://payments-redis:6379", Source: payments()},
		console.Store{Name: "etcd://etcd-1:2379,etcd-2:2379,etcd-3:2379", Source: etcd})
	page := newTab(t)
	page.do(chromedp.EmulateViewport(1440, 900))
	page.login(url)
	time.Sleep(*settle)
	shoot := func(name, theme, hash string, click ...string) {
		t.Helper()
		eval[string](page, `document.querySelector("dialog[open]")?.close(); document.documentElement.dataset.theme = "`+theme+`"; location.hash = "`+hash+`"`)
		for _, selector := range click {
			page.do(chromedp.Click(chromedp.CSS(selector)))
		}
		time.Sleep(1500 * time.Millisecond) // transitions
		png, err := chromedp.Run(page.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d KB", name, len(png)>>10)
	}
	shoot("console-light", "light", "#/")
	shoot("console-dark", "dark", "#/0/payments%2Fsettlement%2Feu-west-1")
	if *allScreenshots {
		shoot("list-dark", "dark", "#/")
		shoot("lock-light", "light", "#/0/card-network%2Fsession")
		shoot("break-light", "light", "#/0/ledger%2Fclose-of-day", "td.action button")
		shoot("free-light", "light", "#/0/nobody%2Fknows")
		shoot("help-dark", "dark", "#/", "#help")
		etcd.down.Store(true)
		shoot("outage-light", "light", "#/")
		shoot("outage-lock-dark", "dark", "#/1/leader%2Fscheduler")
		page.do(chromedp.EmulateViewport(420, 800))
		shoot("narrow-light", "light", "#/")
		shoot("narrow-lock-light", "light", "#/0/card-network%2Fsession")
		page.do(chromedp.EmulateViewport(1440, 900))
		shoot("login-light", "light", "#/", "#logout")
	}
	page.silent()
}
