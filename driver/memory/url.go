package memory

import (
	"context"
	"fmt"

	"github.com/lockerproject/locker/driver"
)

func init() { driver.Register("memory", openURL) }

func openURL(_ context.Context, u *driver.URL) (driver.Driver, error) {
	u.Param("prefix", "") // accepted and ignored: nothing else is in the store
	if len(u.Hosts) > 1 || u.HasUser || (u.Path != "" && u.Path != "/") {
		return nil, fmt.Errorf("want memory:// or memory://name, got %s", u.Redacted())
	}
	if err := u.Done(); err != nil {
		return nil, err
	}
	name := ""
	if len(u.Hosts) == 1 {
		name = u.Hosts[0]
	}
	return Open(name), nil
}
