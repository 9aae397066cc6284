package cabinet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
)

func init() { driver.Register("cabinet", openURL) }

func openURL(_ context.Context, u *driver.URL) (driver.Driver, error) {
	var formErr error
	if len(u.Hosts) != 1 || u.HasUser || u.Path != "" && u.Path != "/" {
		formErr = fmt.Errorf("want cabinet://host:8070, got %s", u.Redacted())
	}
	opts := []Option{
		WithPrefix(u.Param("prefix", DefaultPrefix)),
		WithTimeout(u.Duration("timeout", DefaultTimeout)),
	}
	u.Duration("ttl", time.Second) // the core's
	if err := errors.Join(formErr, u.Done()); err != nil {
		return nil, err
	}
	return New(u.HostsWithPort("8070")[0], opts...)
}
