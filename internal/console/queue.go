package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/lockerproject/locker"
)

// history is what a lock's own page shows besides what all pages get.
type history struct {
	Queue    *queueView `json:"queue"`    // with more of its tickets
	Events   []event    `json:"events"`   // oldest first
	Watching int64      `json:"watching"` // since when the console knows the queue; 0: not at all
	More     int        `json:"more"`     // tickets that are left out
}

func (c *Console) store(number string) *store {
	i, err := strconv.Atoi(number)
	if err != nil || i < 0 || i >= len(c.stores) {
		return nil
	}
	return c.stores[i]
}

func (c *Console) queue(w http.ResponseWriter, r *http.Request, _ *session) {
	st := c.store(r.FormValue("store"))
	if st == nil {
		refuse(w, http.StatusNotFound, "there is no such store")
		return
	}
	answer(w, http.StatusOK, st.history(r.FormValue("name")))
}

func (s *store) history(name string) history {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[name]
	if r == nil {
		return history{Queue: &queueView{Name: name, Tickets: []ticketView{}}, Events: []event{}}
	}
	v := *r.refresh()
	v.Tickets = r.tickets(maxInspected)
	return history{
		Queue: &v, Events: append([]event{}, r.events...),
		Watching: r.since.UnixMilli(), More: len(r.last) - len(v.Tickets),
	}
}

// breakRequest names the ticket to remove.
type breakRequest struct {
	Store int    `json:"store"`
	Name  string `json:"name"`
	Token string `json:"token"`
	Owner string `json:"owner"` // as the page showed it, for the log
}

func (c *Console) breakLock(w http.ResponseWriter, r *http.Request, s *session) {
	if !c.options.AllowBreak {
		refuse(w, http.StatusForbidden, "this console is read-only: start it with --allow-break")
		return
	}
	if s.role != operator {
		refuse(w, http.StatusForbidden, "with the token of this login one can only look")
		return
	}
	var req breakRequest
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(&req); err != nil {
		refuse(w, http.StatusBadRequest, "the request is not what the page sends: "+err.Error())
		return
	}
	st := c.store(strconv.Itoa(req.Store))
	token, err := strconv.ParseUint(req.Token, 10, 64)
	if st == nil || err != nil {
		refuse(w, http.StatusBadRequest, "there is no such store, or the token is no number")
		return
	}
	// The browser's going away must not leave it open whether the lock is broken.
	err = st.breakTicket(context.WithoutCancel(r.Context()), req.Name, key{token, req.Owner})
	c.log.Warn("console: break", "who", s.who, "store", st.Name, "name", req.Name, "fencing_token", req.Token,
		"owner", req.Owner, "from", r.RemoteAddr, "err", err)
	if err != nil {
		refuse(w, breakStatus(err), err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// breakTicket breaks and polls at once, so that all pages show it.
func (s *store) breakTicket(ctx context.Context, name string, k key) error {
	s.markBroken(name, k, true)
	err := s.Source.Break(ctx, name, k.token)
	if err != nil {
		s.markBroken(name, k, false)
	}
	s.wake()
	return err
}

// markBroken has the next poll, if it misses the ticket, tell that it was
// broken. It comes before the request: a poll may see its effect before its answer is
// here.
func (s *store) markBroken(name string, k key, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[name]
	if r == nil {
		return
	}
	if r.broken == nil {
		r.broken = make(map[key]bool)
	}
	r.broken[k] = is
}

func breakStatus(err error) int {
	switch {
	case errors.Is(err, locker.ErrLost):
		return http.StatusConflict
	case errors.Is(err, locker.ErrUnsupported):
		return http.StatusNotImplemented
	case errors.Is(err, locker.ErrInvalidName):
		return http.StatusBadRequest
	case errors.Is(err, locker.ErrUnavailable):
		return http.StatusBadGateway
	default:
		return http.StatusInternalServerError
	}
}
