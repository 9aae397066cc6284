package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
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
