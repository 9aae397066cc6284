package dynamodb

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// Get of as many keys as one request may have, most without an item, returns each document at the place of its key.
func TestGet(t *testing.T) {
	t.Parallel()
	transport := new(http.Transport)
	s := newStore(sdk.New(sdk.Options{
		Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		BaseEndpoint: aws.String("http://" + testbed.SharedDynamoDB(t).Addr()), HTTPClient: &http.Client{Transport: transport},
	}), "locker", options{timeout: 10 * time.Second, create: true, close: transport.CloseIdleConnections})
	prefix := "get-" + rand.Text() // the test may be run several times
	keys := make([]string, 100)
	written := make(map[int]casqueue.Version)
	for i := range keys {
		keys[i] = fmt.Sprint(prefix, ":", i)
		if i%46 != 7 {
			continue
		}
		v, err := s.Put(t.Context(), keys[i], []byte(keys[i]), casqueue.Version{}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		written[i] = v
	}
	docs, err := s.Get(t.Context(), keys...)
	if err != nil || len(docs) != len(keys) {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	s.close()
	if _, err := s.Get(t.Context(), keys[0]); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a reading after the end: %v", err)
	}
	for i, d := range docs {
		v, there := written[i]
		if d.Version != v || there != (string(d.Value) == keys[i]) || d.Expired {
			t.Errorf("document %d is %q, %v, want version %v", i, d.Value, d.Version, v)
		}
	}
}
