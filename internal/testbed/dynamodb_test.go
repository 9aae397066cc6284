package testbed

import "testing"

func TestDynamoDB(t *testing.T) {
	need(t, dynamodb)
	t.Parallel()
	testServer(t, dynamodb, DynamoDB(t))
}
