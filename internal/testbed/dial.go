package testbed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// dialContext returns a connection whose reads and writes end with ctx's
// deadline, or after ten seconds.
func dialContext(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(10 * time.Second)
	}
	return c, c.SetDeadline(deadline)
}

// ask sends a request on a connection of its own, and returns what the server says before it
// closes that.
func ask(ctx context.Context, addr, request string) (string, error) {
	c, err := dialContext(ctx, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// httpClient keeps no connection, and so no goroutine.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// httpDo sends one request and returns the body of a 200.
func httpDo(ctx context.Context, method, url, body string) (string, error) {
	return site{client: httpClient, base: url}.do(ctx, method, "", body)
}

// A site is a server that speaks HTTP.
type site struct {
	client *http.Client
	base   string
	token  string // Consul's; or empty
}

func (s site) do(ctx context.Context, method, path, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewBufferString(body))
	if err != nil {
		return "", err
	}
	if s.token != "" {
		req.Header.Set("X-Consul-Token", s.token)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), err
}
