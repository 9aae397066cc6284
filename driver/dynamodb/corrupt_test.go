package dynamodb_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/dynamodb"
	"github.com/lockerproject/locker/internal/corrupttest"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestCorruptQueue: an item of a queue that no program of ours has written is an error that names its key.
func TestCorruptQueue(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedDynamoDB(t)
	prefix := unique("corrupt")
	d, _ := made(t, srv, dynamodb.WithPrefix(prefix))
	l := locker.New(d)
	t.Cleanup(func() { _ = l.Close() })
	if err := take(t, l, "makes the table").Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin, _ := client(t, srv)
	version := &types.AttributeValueMemberB{Value: []byte("0123456789abcdef")}
	for what, item := range map[string]map[string]types.AttributeValue{
		"no value":      {},
		"value":         {"value": &types.AttributeValueMemberB{Value: []byte("garbage")}, "version": version},
		"cut stream":    {"value": &types.AttributeValueMemberB{Value: []byte("\x1f\x8b\b\x00\x00\x00\x00\x00\x00\xff\xaa")}, "version": version},
		"empty stream":  {"value": &types.AttributeValueMemberB{Value: []byte("\x1f\x8b\b\x00\x00\x00\x00\x00\x00\xff\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00")}, "version": version},
		"object":        {"value": &types.AttributeValueMemberB{Value: []byte("{}")}, "version": version},
		"text":          {"value": &types.AttributeValueMemberS{Value: `{"v":1}`}, "version": version},
		"short version": {"value": &types.AttributeValueMemberB{Value: []byte(`{"v":1}`)}, "version": &types.AttributeValueMemberB{Value: []byte("0")}},
		"lease":         {"value": &types.AttributeValueMemberB{Value: []byte(`{"v":1,"q":[{"n":"lease","l":9,"t":[{"i":"1","p":"P","k":5,"d":-1,"e":1}]}]}`)}, "version": version},
	} {
		sum := sha256.Sum256([]byte(what))
		key := prefix + ":q:" + hex.EncodeToString(sum[:16])
		item["id"] = &types.AttributeValueMemberS{Value: key}
		if _, err := admin.PutItem(t.Context(), &sdk.PutItemInput{TableName: aws.String("locker"), Item: item}); err != nil {
			t.Fatal(err)
		}
		corrupttest.NotGranted(t, l, what, key)
		remove(t, admin, key)
		if err := take(t, l, what).Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
