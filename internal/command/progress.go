package command

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress is a bar on a terminal; elsewhere it is nothing. Its methods are for one
// goroutine.
type progress struct {
	w     io.Writer // nil: no terminal
	drawn bool
}

// newProgress draws on standard error, if that is a terminal.
func (a *app) newProgress() *progress {
	if !isTerminal(a.Err) {
		return &progress{}
	}
	return &progress{w: a.Err}
}

const barWidth = 30

// draw shows how much is done, from 0 to 1.
func (p *progress) draw(what string, done float64, rest string) {
	if p.w == nil {
		return
	}
	full := int(barWidth * min(1, max(0, done)))
	fmt.Fprintf(p.w, "\r\x1b[K%s [%s%s] %s", what, strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), rest)
	p.drawn = true
}

// clear removes the bar, so that something else can be printed.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

// during draws the time that passes until it is over or done is closed.
func (p *progress) during(what string, length time.Duration, done <-chan struct{}) {
	begun := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		passed := time.Since(begun)
		p.draw(what, passed.Seconds()/length.Seconds(), max(0, length-passed).Round(time.Second).String())
		select {
		case <-done:
			p.clear()
			return
		case <-tick.C:
		}
	}
}
