package browsertest

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/lockerproject/locker/internal/console"
)

// unreadable lists the texts in sight whose contrast is below 4.5 (WCAG 2.2,
// 1.4.3), and the controls that have no name.
const unreadable = `(() => {
	const rgb = c => c.match(/[\d.]+/g).map(Number);
	const over = (a, b) => a.slice(0, 3).map((v, i) => v * (a[3] ?? 1) + b[i] * (1 - (a[3] ?? 1)));
	const light = c => {
		const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ground = e => {
		if (!e) return [255, 255, 255];
		const c = rgb(getComputedStyle(e).backgroundColor);
		return (c[3] ?? 1) === 1 ? c : over(c, ground(e.parentElement));
	};
	const bad = [];
	const root = document.querySelector("dialog[open]") ?? document.body;
	for (const e of root.querySelectorAll("*")) {
		const style = getComputedStyle(e);
		if (!e.checkVisibility() || style.clipPath !== "none" || e.closest("svg") || e.disabled) continue;
		if ([...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) {
			const g = ground(e), [a, b] = [light(over(rgb(style.color), g)), light(g)];
			const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			if (contrast < 4.5) bad.push(contrast.toFixed(2) + " " + e.className + ": " + e.innerText.slice(0, 30));
		}
		if (e.matches("button, a, input") && !(e.innerText || e.ariaLabel || e.labels?.length)) bad.push("no name: " + e.outerHTML.slice(0, 80));
	}
	return bad.join("\n");
})()`

func TestReadable(t *testing.T) {
	t.Parallel()
	etcd := clusters()
	url := serve(t, console.Options{AllowBreak: true}, console.Store{Name: "redis", Source: payments()}, console.Store{Name: "etcd", Source: etcd})
	page := newTab(t)
	page.do(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("#token")))
	check := func(view string) {
		t.Helper()
		for _, theme := range []string{"light", "dark"} {
			eval[string](page, `document.documentElement.dataset.theme = "`+theme+`"`)
			if bad := eval[string](page, unreadable); bad != "" {
				t.Errorf("%s, %s:\n%s", view, theme, bad)
			}
		}
	}
	check("login")
	page.login(url)
	page.shows(".row .lockname", "ledger/close-of-day")
	etcd.down.Store(true)
	page.shows(".banner", "etcd does not answer")
	page.do(chromedp.Click(chromedp.CSS("#contended")), chromedp.KeyEvent("j"))
	check("list")
	eval[string](page, `location.hash = "#/0/ledger%2Fclose-of-day"`)
	page.shows("tr.holder .owner", "batch-07")
	check("lock")
	page.do(chromedp.Click(chromedp.CSS("td.action button")), chromedp.WaitVisible(chromedp.CSS("dialog[open]")))
	check("break")
	page.do(chromedp.Click(chromedp.CSS("dialog .danger-solid")))
	page.shows("dialog .refusal", "not supported")
	check("refused break")
	eval[string](page, `document.querySelector("dialog[open]").close(); location.hash = "#/1/leader%2Fscheduler"`)
	page.shows("#lock.stale .owner", "scheduler-0")
	check("stale lock")
	page.do(chromedp.Click(chromedp.CSS("#help")), chromedp.WaitVisible(chromedp.CSS("dialog[open]")))
	check("help")
	eval[string](page, `document.querySelector("dialog[open]").close() ?? ""`)
	page.do(chromedp.Click(chromedp.CSS("#live")), chromedp.WaitVisible(chromedp.CSS("#health[open]")))
	check("health")
	page.silent("501")
}
