package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/consul"
	"github.com/testcontainers/testcontainers-go/modules/etcd"
	"github.com/testcontainers/testcontainers-go/modules/mariadb"
	"github.com/testcontainers/testcontainers-go/modules/mysql"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
	"github.com/testcontainers/testcontainers-go/modules/redis"
	"go.yaml.in/yaml/v3"
)

type option = testcontainers.ContainerCustomizer

// A runner is the Run of a testcontainers module.
type runner func(ctx context.Context, image string, opts ...option) (testcontainers.Container, error)

// A store is one that can be had as a container.
type store struct {
	port uint16 // inside the container
	run  runner
	// arguments says how the module takes those of the server; nil: as the command's.
	arguments func(args []string) option
}

// stores are by their names in docker-compose.yml.
var stores = map[string]store{
	"consul":    {port: 8500, run: module(consul.Run)},
	"dynamodb":  {port: 8000, run: module(testcontainers.Run)},
	"etcd":      {port: 2379, run: module(etcd.Run), arguments: func(a []string) option { return etcd.WithAdditionalArgs(a...) }},
	"mariadb":   {port: 3306, run: module(mariadb.Run)},
	"memcached": {port: 11211, run: module(testcontainers.Run)}, // the module for it has no use for arguments
	"mysql":     {port: 3306, run: module(mysql.Run)},
	"nats":      {port: 4222, run: module(testcontainers.Run)}, // the module for it has no use for arguments
	"postgres":  {port: 5432, run: module(postgres.Run)},
	"redis":     {port: 6379, run: module(redis.Run)},
	"zookeeper": {port: 2181, run: module(testcontainers.Run), arguments: zooCfg}, // there is no module for it
}

// zooCfg takes lines of zoo.cfg, as the testbed's arguments of a ZooKeeper are.
func zooCfg(lines []string) option {
	return testcontainers.WithEnv(map[string]string{"ZOO_CFG_EXTRA": strings.Join(lines, " ")})
}

// module makes a runner that leaves nothing behind when it fails.
func module[C testcontainers.Container](run func(context.Context, string, ...option) (C, error)) runner {
	return func(ctx context.Context, image string, opts ...option) (testcontainers.Container, error) {
		c, err := run(ctx, image, opts...)
		if err != nil {
			return nil, errors.Join(err, testcontainers.TerminateContainer(c))
		}
		return c, nil
	}
}

// options are those of a container whose store is reached at a port of the
// loopback: the same one after each start, which Docker's own choice is not.
func (s store) options(port uint16, env, args []string) []option {
	environment := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		environment[name] = value
	}
	inside := strconv.Itoa(int(s.port)) + "/tcp"
	opts := []option{
		testcontainers.WithNoStart(),
		testcontainers.WithEnv(environment),
		testcontainers.WithExposedPorts(inside),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
			c.PortBindings = network.PortMap{network.MustParsePort(inside): {{
				HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1}), HostPort: strconv.Itoa(int(port)),
			}}}
		}),
	}
	switch {
	case len(args) == 0:
	case s.arguments != nil:
		opts = append(opts, s.arguments(args))
	default:
		opts = append(opts, testcontainers.WithCmdArgs(args...))
	}
	return opts
}

// composeFile is the one place that names images.
const composeFile = "../../docker-compose.yml"

// imageOf returns a store's image.
func imageOf(name string) (string, error) {
	services, err := readServices()
	if err != nil {
		return "", err
	}
	if services[name].Image == "" {
		return "", fmt.Errorf("%s names no image for %s", composeFile, name)
	}
	return services[name].Image, nil
}

// A service is what is read of one in docker-compose.yml.
type service struct {
	Image       string
	Profiles    []string
	Ports       []string
	Tmpfs       any
	Labels      map[string]string
	HealthCheck struct{ Test any } `yaml:"healthcheck"`
}

func readServices() (map[string]service, error) {
	text, err := os.ReadFile(composeFile)
	if err != nil {
		return nil, err
	}
	var file struct{ Services map[string]service }
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", composeFile, err)
	}
	return file.Services, nil
}
