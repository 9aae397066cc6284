package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// dynamodbRunner is the main class of Amazon's DynamoDB Local.
const dynamodbRunner = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"

var dynamodb = &kind{
	name:   "dynamodb",
	scheme: "dynamodb",
	ports:  1,
	find: func() (string, error) {
		java, err := lookup([]string{"java"}, filepath.Join(os.Getenv("JAVA_HOME"), "bin"))
		if err != nil {
			return "", err
		}
		if jars, _ := filepath.Glob(filepath.Join(cacheDir("dynamodb"), "DynamoDBLocal-*.jar")); len(jars) == 0 {
			return "", errors.New("DynamoDB Local is not on this machine")
		}
		return java, nil
	},
	command: func(n *node) *exec.Cmd {
		lib := cacheDir("dynamodb")
		// The quick compiler, since the server of a test lives for seconds; and much space for what is new, since a
		// collection of garbage on a busy machine stops it for up to 100 ms.
		args := []string{
			"-Xms192m", "-Xmn128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
			"-Djava.library.path=" + lib, "-Dsqlite4java.library.path=" + lib, "-Dlog4j2.level=ERROR",
			"-cp", filepath.Join(lib, "*"), dynamodbRunner,
			"-disableTelemetry", "-sharedDb", "-port", strconv.Itoa(n.ports[0]),
		}
		if n.opts.faults || n.opts.durable {
			args = append(args, "-dbPath", n.dir)
		} else {
			args = append(args, "-inMemory") // a write takes a third less time
		}
		cmd := exec.Command(n.bin, append(args, n.opts.args...)...)
		if libs, _ := filepath.Glob("/usr/lib/*/libeatmydata.so.1"); len(libs) > 0 && !n.opts.durable {
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+libs[0]) // its SQLite would sync each write to the disk
		}
		return cmd
	},
	ready: dynamodbReady,
	url: func(addrs string) string {
		dynamodbCredentials()
		return "dynamodb://locker?region=eu-west-1&create=true&endpoint=http://" + addrs
	},
	addr: func(u *url.URL) string {
		endpoint, err := url.Parse(u.Query().Get("endpoint"))
		if err != nil {
			return ""
		}
		return endpoint.Host
	},
}

// dynamodbReady asks for a table that is not there.
func dynamodbReady(ctx context.Context, addr string, _ options) error {
	const body = `{"TableName":"ready"}`
	answer, err := ask(ctx, addr, fmt.Sprintf("POST / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/x-amz-json-1.0\r\n"+
		"X-Amz-Target: DynamoDB_20120810.DescribeTable\r\n"+
		"Authorization: AWS4-HMAC-SHA256 Credential=local/20250101/eu-west-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0\r\n"+
		"Content-Length: %d\r\n\r\n%s", addr, len(body), body))
	if err == nil && !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
		err = fmt.Errorf("DynamoDB Local answers %q", answer)
	}
	return err
}

// dynamodbCredentials gives this process, and those that it starts, credentials for DynamoDB Local, which takes
// any. Without them the SDK would look for those of a machine of Amazon's.
var dynamodbCredentials = sync.OnceFunc(func() {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, value)
		}
	}
})

// DynamoDB starts a DynamoDB Local for this test alone. With [Faults] or [Durable] its data is in a file. It listens on all addresses of the
// machine: it cannot be told otherwise. Its URL names a table that a driver creates.
var DynamoDB = dynamodb.private

// SharedDynamoDB returns the DynamoDB Local that all tests of this process share. They must use tables or prefixes
// of their own, and not stop it.
var SharedDynamoDB = dynamodb.share
