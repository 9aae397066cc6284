package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
)

// ServerVersion asks one server for its name and version. HELLO is open to every user.
func ServerVersion(ctx context.Context, c redis.UniversalClient) (string, error) {
	answer, err := c.Do(ctx, "HELLO").Result()
	if err != nil {
		return "", err
	}
	about := pairs(answer)
	name, version := about["server"], about["version"]
	if version == "" || name == "" {
		return "", errors.New("the server does not tell its version")
	}
	return strings.ToUpper(name[:1]) + name[1:] + " " + version, nil
}

// CheckServer returns driver.ErrUnsupported if a server is known to grant what another
// server has granted. A server that does not say is taken for a good one.
func CheckServer(ctx context.Context, c redis.UniversalClient) error {
	answer, err := c.Do(ctx, "HELLO").Result()
	if err != nil {
		return nil //nolint:nilerr // the requests that follow will show what is wrong
	}
	if pairs(answer)["role"] == "active-replica" {
		return fmt.Errorf("%w: a server of KeyDB with active-replica: its peers accept writes too, so that each of them could grant the same lock",
			driver.ErrUnsupported)
	}
	return nil
}

// pairs returns the pairs of a map, which servers before RESP 3 send as a list.
func pairs(answer any) map[string]string {
	all := make(map[string]string)
	switch answer := answer.(type) {
	case map[any]any:
		for k, v := range answer {
			all[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	case []any:
		for i := 0; i+1 < len(answer); i += 2 {
			all[fmt.Sprint(answer[i])] = fmt.Sprint(answer[i+1])
		}
	}
	return all
}
