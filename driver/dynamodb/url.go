package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/logging"

	"github.com/lockerproject/locker/driver"
)

const (
	defaultPool = 64               // connections at most, if the URL does not say
	idle        = 20 * time.Second // until an idle connection is closed, before DynamoDB would close it
)

func init() { driver.Register("dynamodb", openURL) }

func openURL(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	opts := []Option{WithPrefix(u.Param("prefix", DefaultPrefix)), WithTimeout(u.Duration("timeout", DefaultTimeout))}
	if u.Bool("create", false) {
		opts = append(opts, WithCreate())
	}
	switch v := u.Param("replicas", "refuse"); v {
	case "refuse":
	case "accept":
		opts = append(opts, WithReplicas())
	default:
		u.Refuse(fmt.Errorf("parameter replicas: want refuse or accept, got %q", v))
	}
	region, endpoint := u.Param("region", ""), u.Param("endpoint", "")
	dialTimeout, pool := u.Duration("dial_timeout", DefaultTimeout), u.Int("pool_size", defaultPool, 1)
	u.Duration("ttl", time.Second) // the core's
	if err := errors.Join(checkForm(u, endpoint), u.Done()); err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(region), config.WithLogger(logging.Nop{})) // errors are returned
	if err != nil {
		return nil, err
	}
	if cfg.Region == "" {
		return nil, errors.New("parameter region: the URL has none, nor has AWS_REGION or the profile of the AWS configuration")
	}
	transport := transportOf(cfg.HTTPClient, dialTimeout, pool)
	client := sdk.NewFromConfig(cfg, func(o *sdk.Options) {
		o.HTTPClient = &http.Client{Transport: transport, CheckRedirect: noRedirect}
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	})
	return New(client, u.Hosts[0], append(opts, func(o *options) { o.close = transport.CloseIdleConnections })...)
}

func checkForm(u *driver.URL, endpoint string) error {
	switch {
	case u.HasUser:
		return errors.New("no user and no password here: credentials are those that the AWS SDK finds, in the environment, its files, or a role")
	case len(u.Hosts) != 1 || u.Path != "" && u.Path != "/":
		return fmt.Errorf("want dynamodb://table?region=…, got %s", u.Redacted())
	case endpoint == "":
		return nil
	}
	if e, err := url.Parse(endpoint); err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil {
		return errors.New("parameter endpoint: want http://host:port or https://host")
	}
	return nil
}

// transportOf is the transport of the SDK's own client, with the authorities of AWS_CA_BUNDLE.
func transportOf(client aws.HTTPClient, dialTimeout time.Duration, pool int) *http.Transport {
	base, ok := client.(*awshttp.BuildableClient)
	if !ok {
		base = awshttp.NewBuildableClient()
	}
	base = base.WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout })
	t := base.GetTransport()
	t.TLSHandshakeTimeout = dialTimeout
	t.IdleConnTimeout = idle
	t.MaxConnsPerHost, t.MaxIdleConnsPerHost, t.MaxIdleConns = pool, pool, pool
	return t
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
