package redisqueue

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ServerVersion asks one server for its name and version. HELLO is open to every
// user; a server older than Redis 6 does not know it and is asked for INFO.
func ServerVersion(ctx context.Context, c redis.UniversalClient) (string, error) {
	name, version := "redis", ""
	answer, err := c.Do(ctx, "HELLO").Result()
	if IsReply(err) {
		text, err := c.Info(ctx, "server").Result()
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(text) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
				version = v
			}
		}
	} else if err != nil {
		return "", err
	}
	for key, value := range pairs(answer) {
		switch key {
		case "server":
			name = value
		case "version":
			version = value
		}
	}
	if version == "" || name == "" {
		return "", fmt.Errorf("the server does not tell its version")
	}
	return strings.ToUpper(name[:1]) + name[1:] + " " + version, nil
}

// pairs are those of a map, which servers before RESP 3 send as a list.
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
