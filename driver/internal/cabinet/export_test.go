package cabinet

import (
	"context"
	"net"
	"net/http"
)

// DialWith sets how the driver connects, before it does.
func (d *Driver) DialWith(dial func(context.Context) (net.Conn, error)) {
	d.store.client.Transport = &http.Transport{
		MaxIdleConnsPerHost: 16,
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
}

// Get sends a request as the engine does.
func (d *Driver) Get(ctx context.Context) error {
	_, err := d.store.Get(ctx, "key")
	return err
}
