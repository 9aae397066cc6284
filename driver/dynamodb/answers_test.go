package dynamodb_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/dynamodb"
	"github.com/lockerproject/locker/internal/testbed"
)

// An overloaded or broken server is an outage; a server that refuses this program is not.
func TestErrors(t *testing.T) {
	t.Parallel()
	d, w := made(t, testbed.SharedDynamoDB(t), dynamodb.WithPrefix(unique("errors")))
	if err := d.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status      int
		code        string
		unavailable bool
	}{
		{400, "ProvisionedThroughputExceededException", true},
		{400, "ThrottlingException", true},
		{400, "RequestLimitExceeded", true},
		{400, "ReplicatedWriteConflictException", true},
		{500, "InternalServerError", true},
		{503, "ServiceUnavailable", true},
		{400, "AccessDeniedException", false},
		{400, "UnrecognizedClientException", false},
		{400, "ExpiredTokenException", false},
		{400, "ValidationException", false},
	} {
		w.does(func(string, []byte, func() (*http.Response, error)) (*http.Response, error) {
			return refusal(c.status, c.code)
		})
		before := w.count()
		if err := d.Ping(t.Context()); err == nil || driver.IsUnavailable(err) != c.unavailable || !strings.Contains(err.Error(), c.code) {
			t.Errorf("%s: %v, want it unavailable: %v", c.code, err, c.unavailable)
		}
		if got := w.count() - before; got != 1 {
			t.Errorf("%s: %d requests, want one", c.code, got)
		}
	}
	w.does(func(string, []byte, func() (*http.Response, error)) (*http.Response, error) {
		return answer(200, "<html>")
	})
	if err := d.Ping(t.Context()); !driver.IsUnavailable(err) {
		t.Errorf("a broken answer: %v", err)
	}
	w.does(nil)
	if err := d.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// closedBody is the body of an answer whose connection this process has closed.
type closedBody struct{ io.ReadCloser }

func (closedBody) Read([]byte) (int, error) {
	return 0, &net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed}
}

// TestConnectionClosedWhileReading: a request that reads is sent again if its connection was closed here, once. One that
// writes is not: it was done.
func TestConnectionClosedWhileReading(t *testing.T) {
	t.Parallel()
	d, w := made(t, testbed.SharedDynamoDB(t), dynamodb.WithPrefix(unique("closed")))
	closes := func(times int) {
		w.does(func(op string, _ []byte, send func() (*http.Response, error)) (*http.Response, error) {
			resp, err := send()
			if times--; err == nil && times >= 0 && (op == "BatchGetItem" || op == "DescribeTable") {
				resp.Body = closedBody{resp.Body}
			}
			return resp, err
		})
	}
	for times, want := range []bool{true, true, false} {
		closes(times)
		if _, err := d.Inspect(t.Context(), "a"); (err == nil) != want {
			t.Errorf("closed %d times: %v", times, err)
		}
	}
	w.does(func(op string, _ []byte, send func() (*http.Response, error)) (*http.Response, error) {
		resp, err := send()
		if err == nil && op == "PutItem" {
			resp.Body = closedBody{resp.Body}
		}
		return resp, err
	})
	before := w.count("PutItem")
	if err := d.Ping(t.Context()); !driver.IsUnavailable(err) || w.count("PutItem")-before != 1 {
		t.Errorf("a write whose connection was closed: %v, sent %d times", err, w.count("PutItem")-before)
	}
}

// An incomplete answer is refused: an item that it leaves out may exist, and the process that has written it may live.
func TestAnswerIncomplete(t *testing.T) {
	t.Parallel()
	d, w := made(t, testbed.SharedDynamoDB(t), dynamodb.WithPrefix(unique("incomplete")))
	r := request("n", "a")
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		"", "{}", "null", `{"UnprocessedKeys":{}}`, `{"Responses":null}`, `{"Responses":{},"UnprocessedKeys":{}}`,
		`{"Responses":{"locker":[{}]},"UnprocessedKeys":{}}`,
		`{"Responses":{"locker":[{"id":{"N":"1"}}]},"UnprocessedKeys":{}}`,
		`{"Responses":{"locker":[{"id":{"S":"another"}}]},"UnprocessedKeys":{}}`,
		`{"Responses":{"locker":[],"other":[]},"UnprocessedKeys":{}}`,
	} {
		w.does(func(op string, _ []byte, send func() (*http.Response, error)) (*http.Response, error) {
			if op == "BatchGetItem" {
				return answer(200, body)
			}
			return send()
		})
		if queue, err := d.Inspect(t.Context(), "n"); !driver.IsUnavailable(err) {
			t.Errorf("inspect, with the answer %q: %v, %v", body, queue, err)
		}
		if err := d.Renew(t.Context(), r.Hold(g.Token), r.TTL); !driver.IsUnavailable(err) || errors.Is(err, driver.ErrLost) {
			t.Errorf("renew, with the answer %q: %v", body, err)
		}
	}
	w.does(nil)
	if err := d.Renew(t.Context(), r.Hold(g.Token), r.TTL); err != nil {
		t.Error(err)
	}
	other, w := made(t, testbed.SharedDynamoDB(t))
	w.does(func(string, []byte, func() (*http.Response, error)) (*http.Response, error) { return answer(200, "{}") })
	if err := other.Ping(t.Context()); !driver.IsUnavailable(err) {
		t.Errorf("ping, of a table that is not described: %v", err)
	}
}

// Without credentials no request is sent: DynamoDB has not answered. A refusal of this caller, by the server of the
// credentials, is none of the store's outages.
func TestNoCredentials(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		outage bool
	}{
		{errors.New("no EC2 IMDS role found"), true},
		{&smithy.OperationError{ServiceID: "STS", OperationName: "AssumeRole", Err: &smithy.GenericAPIError{Code: "AccessDenied", Fault: smithy.FaultClient}}, false},
		{&smithy.OperationError{ServiceID: "STS", OperationName: "AssumeRole", Err: &smithy.GenericAPIError{Code: "Throttling", Fault: smithy.FaultClient}}, true},
	} {
		client := sdk.New(sdk.Options{
			Region: "eu-west-1", BaseEndpoint: aws.String("http://127.0.0.1:1"),
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, c.err }),
		})
		d, err := dynamodb.New(client, "table")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := d.Ping(t.Context()); driver.IsUnavailable(err) != c.outage || !errors.Is(err, c.err) {
			t.Errorf("%v: an outage %t, want %t", err, driver.IsUnavailable(err), c.outage)
		}
	}
}
