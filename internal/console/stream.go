package console

import (
	"encoding/json"
	"net/http"
	"time"
)

const (
	heartbeat   = 15 * time.Second // so that a proxy, or we, notice who is gone
	writeWithin = 15 * time.Second
)

// hello is the first message of a stream.
type hello struct {
	Now        int64    `json:"now"`
	AllowBreak bool     `json:"allowBreak"`
	Every      int64    `json:"every"`
	Bucket     int64    `json:"bucket"`
	Buckets    int      `json:"buckets"`
	Stores     []string `json:"stores"`
}

// change is what is new in a store. The first of a stream has all.
type change struct {
	Store  int                 `json:"store"`
	Now    int64               `json:"now"`
	Status status              `json:"status"`
	Full   bool                `json:"full,omitempty"`
	Set    []*queueView        `json:"set,omitempty"`
	Gone   []string            `json:"gone,omitempty"`
	Rates  map[string][]uint16 `json:"rates,omitempty"` // sparklines of the queues that are new to the browser
	Seen   []bool              `json:"seen"`            // the buckets of sparklines in which the store was polled
}

// events streams changes until the browser goes, the session ends or the console
// is closed. A browser that reads slowly skips snapshots, and loses nothing.
func (c *Console) events(w http.ResponseWriter, r *http.Request, s *session) {
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		refuse(w, http.StatusServiceUnavailable, "too many pages are open")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold it back
	out := &stream{w: w, control: http.NewResponseController(w), sent: make([]*snapshot, len(c.stores))}

	news := make(chan struct{}, 1)
	for _, st := range c.stores {
		defer st.watch(news)()
	}
	err := out.send("hello", c.hello(s))
	keepAlive := time.NewTicker(heartbeat)
	defer keepAlive.Stop()
	for err == nil {
		if err = out.changes(c.stores); err != nil {
			return
		}
		select {
		case <-news:
		case <-keepAlive.C:
			err = out.send("keep-alive", struct{}{})
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			if c.ctx.Err() == nil { // else the page keeps what it shows, and tries again
				_ = out.send("bye", struct{}{})
			}
			return
		}
	}
}

func (c *Console) hello(s *session) hello {
	h := hello{
		Now: time.Now().UnixMilli(), AllowBreak: c.options.AllowBreak && s.role == operator,
		Every: c.options.Every.Milliseconds(), Bucket: bucket.Milliseconds(), Buckets: numBuckets,
	}
	for _, st := range c.stores {
		h.Stores = append(h.Stores, st.Name)
	}
	return h
}

// stream is one browser's, with what it was sent last of each store.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	sent    []*snapshot
}

func (o *stream) changes(stores []*store) error {
	for i, st := range stores {
		ch, now := st.since(o.sent[i])
		if now == o.sent[i] {
			continue
		}
		o.sent[i], ch.Store = now, i
		if err := o.send("store", ch); err != nil {
			return err
		}
	}
	return nil
}

// since returns what is new after old, which is nil for a new browser.
func (s *store) since(old *snapshot) (change, *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	ch := change{Now: now.UnixMilli(), Status: s.snapshot.Status, Full: old == nil, Seen: s.polls.all(now)}
	if s.snapshot == old {
		return ch, old
	}
	ch.Set, ch.Gone = s.snapshot.diff(old)
	for _, v := range ch.Set { // a queue that the browser does not know comes with its past
		if old != nil && old.queues[v.Name] != nil {
			continue
		}
		if rates := s.records[v.Name].rates(now); rates != nil {
			if ch.Rates == nil {
				ch.Rates = make(map[string][]uint16)
			}
			ch.Rates[v.Name] = rates
		}
	}
	return ch, s.snapshot
}

func (o *stream) send(kind string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_ = o.control.SetWriteDeadline(time.Now().Add(writeWithin))            // tests' recorders know none
	msg := append([]byte("retry: 1000\nevent: "+kind+"\ndata: "), data...) // a lost stream is opened again after a second
	if _, err := o.w.Write(append(msg, "\n\n"...)); err != nil {
		return err
	}
	return o.control.Flush()
}
