package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/figures"
	"github.com/lockerproject/locker/internal/retry"
)

func (a *app) addVoice(f *pflag.FlagSet) {
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print only errors, and not that the lock is busy")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "say what happens to the lock")
}

// say prints a message that is not the result, on standard error, unless --quiet is
// given.
func (a *app) say(format string, args ...any) {
	if a.quiet {
		return
	}
	text := strings.TrimPrefix(oneLine(fmt.Sprintf(format, args...)), "locker: ")
	if a.json {
		_ = json.NewEncoder(a.Err).Encode(struct {
			Time    time.Time `json:"time"`
			Message string    `json:"message"`
		}{time.Now(), text})
		return
	}
	fmt.Fprintln(a.Err, paint(a.Err, dim, "locker: "+printable(text)))
}

// detail is say under --verbose.
func (a *app) detail(format string, args ...any) {
	if a.verbose {
		a.say(format, args...)
	}
}

// narrator says what happens to the locks of a verb.
type narrator struct {
	*app
	minHold time.Duration // of the locks

	mu      sync.Mutex
	waiting map[string]context.CancelFunc // by lock name: ends the goroutine that waits has started
	failing map[string]bool               // by lock name: the last renewal has failed
	group   sync.WaitGroup
	client  *locker.Client
}

// acquire is locker.AcquireAll. After a second, at a terminal or with --verbose, it
// says for whom it waits.
func (n *narrator) acquire(ctx context.Context, client *locker.Client, names []string, opts ...locker.Option) (*locker.Lock, error) {
	n.client = client
	defer n.group.Wait()
	return locker.AcquireAll(ctx, client, names, opts...)
}

// observe is called for every event. It must not ask the store: waits does that.
func (n *narrator) observe(ctx context.Context, e locker.Event) {
	switch e.Kind {
	case locker.EventWaiting:
		n.waits(ctx, e.Name)
	case locker.EventAcquired:
		n.granted(e.Name)
		n.detail("%s: acquired after %v, token %d", e.Name, figures.Round(e.Elapsed), e.Token)
		if e.Degraded != nil {
			n.say("%s: acquired on a substitute for the store: %v", e.Name, e.Degraded)
		}
	case locker.EventRenewFailed, locker.EventRenewed:
		n.renewed(e)
	case locker.EventFailed:
		n.granted(e.Name)
	case locker.EventRejoined:
		n.detail("%s: the store was away; waiting again", e.Name)
	case locker.EventLost:
		n.say("%s: lost after %v: %v", e.Name, figures.Round(e.Elapsed), e.Err)
	case locker.EventReleased:
		kept := ""
		if e.Elapsed < n.minHold {
			kept = fmt.Sprintf("; it stays locked for at least %v from its grant", n.minHold)
		}
		n.detail("%s: released after %v%s", e.Name, figures.Round(e.Elapsed), kept)
	}
}

// renewed says once that the renewals of a lock fail, and once that they succeed again: they are
// tried every few hundred milliseconds.
func (n *narrator) renewed(e locker.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, fails := n.failing[e.Name], e.Kind == locker.EventRenewFailed
	if n.failing == nil {
		n.failing = make(map[string]bool)
	}
	n.failing[e.Name] = fails
	switch {
	case fails && !was:
		n.detail("%s: not renewed, will try again: %v", e.Name, e.Err)
	case was && !fails:
		n.detail("%s: renewed again", e.Name)
	}
}

func (n *narrator) waits(ctx context.Context, name string) {
	if n.quiet || !n.verbose && !isTerminal(n.Err) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting == nil {
		n.waiting = make(map[string]context.CancelFunc)
	}
	ctx, n.waiting[name] = context.WithCancel(ctx)
	client := n.client
	n.group.Go(func() {
		if !retry.Sleep(ctx, time.Second, nil) {
			return
		}
		switch holders := describeHolders(ctx, client, name); {
		case ctx.Err() != nil:
		case holders == "":
			n.say("waiting for %s", name)
		default:
			n.say("waiting for %s: %s", name, holders)
		}
	})
}

// granted ends what waits has begun.
func (n *narrator) granted(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if end := n.waiting[name]; end != nil {
		end()
		delete(n.waiting, name)
	}
}

// describeHolders says who holds a lock, and how many wait; "" if nobody holds it,
// or the store does not answer soon.
func describeHolders(ctx context.Context, client *locker.Client, name string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	q, err := client.Inspect(ctx, name)
	if err != nil {
		return ""
	}
	var holders []string
	waiters := 0
	for _, t := range q.Tickets {
		switch {
		case !t.Held:
			waiters++
		case len(holders) < 3:
			holders = append(holders, describeHolder(t))
		case len(holders) == 3:
			holders = append(holders, "others")
		}
	}
	if len(holders) == 0 {
		return ""
	}
	text := "held by " + strings.Join(holders, ", ")
	if waiters > 0 {
		text += "; " + count(waiters, "waiter", "waiters")
	}
	return text
}

func describeHolder(t locker.Ticket) string {
	text := t.Owner
	if t.Note != "" {
		text += " (" + t.Note + ")"
	}
	if !t.Since.IsZero() {
		text += fmt.Sprintf(" for %v", figures.Round(time.Since(t.Since)))
	}
	return text
}
