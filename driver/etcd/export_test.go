package etcd

import (
	"context"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/lockerproject/locker/driver"
)

// WithVersion makes a driver that speaks another protocol version.
func WithVersion(v string) Option { return func(o *options) { o.version = v } }

// OpenWith opens a driver by URL, with more dial options.
func OpenWith(ctx context.Context, url, prefix string, opts ...grpc.DialOption) (*Driver, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, err
	}
	config, err := clientConfig(u)
	if err != nil {
		return nil, err
	}
	config.Logger = zap.NewNop()
	config.DialOptions = append(config.DialOptions, opts...)
	o, err := newOptions([]Option{WithPrefix(prefix)})
	if err != nil {
		return nil, err
	}
	return dial(ctx, config, o)
}
