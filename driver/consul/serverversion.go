package consul

import (
	"context"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
)

var _ driver.ServerVersioner = (*Driver)(nil)

// ServerVersion implements driver.ServerVersioner: that of the agent. Where rules
// apply it takes the right to read the agent.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	ctx, done := d.bind(ctx)
	defer done()
	var self struct {
		Config struct{ Version string }
	}
	if _, err := d.store.client.Raw().Query("/v1/agent/self", &self, (&api.QueryOptions{}).WithContext(ctx)); err != nil {
		return "", failure(ctx, err)
	}
	return "Consul " + self.Config.Version, nil
}
