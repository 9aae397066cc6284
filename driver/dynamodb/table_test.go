package dynamodb

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/lockerproject/locker/driver"
)

// DynamoDB Local has no table that is being made, and no global one.
func TestUsable(t *testing.T) {
	t.Parallel()
	table := func(f func(*types.TableDescription)) *types.TableDescription {
		d := &types.TableDescription{
			TableStatus:          types.TableStatusActive,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		}
		f(d)
		return d
	}
	replicated := func(d *types.TableDescription) {
		d.Replicas = []types.ReplicaDescription{{RegionName: aws.String("eu-west-1")}}
	}
	for _, c := range []struct {
		what, want  string
		unavailable bool
		o           options
		table       *types.TableDescription
	}{
		{what: "as it should be", table: table(func(*types.TableDescription) {})},
		{what: "being changed", table: table(func(d *types.TableDescription) { d.TableStatus = types.TableStatusUpdating })},
		{
			what: "being created", want: "being created", unavailable: true,
			table: table(func(d *types.TableDescription) { d.TableStatus = types.TableStatusCreating }),
		},
		{
			what: "archived", want: "ARCHIVED", unavailable: true,
			table: table(func(d *types.TableDescription) { d.TableStatus = types.TableStatusArchived }),
		},
		{
			what: "a number as key", want: "partition key",
			table: table(func(d *types.TableDescription) { d.AttributeDefinitions[0].AttributeType = types.ScalarAttributeTypeN }),
		},
		{what: "global", want: "two regions", table: table(replicated)},
		{
			what: "global of the first version", want: "two regions",
			table: table(func(d *types.TableDescription) { d.GlobalTableVersion = aws.String("2017.11.29") }),
		},
		{what: "global, accepted", o: options{replicas: true}, table: table(replicated)},
		{what: "global with strong consistency", table: table(func(d *types.TableDescription) {
			replicated(d)
			d.MultiRegionConsistency = types.MultiRegionConsistencyStrong
		})},
	} {
		err := newStore(nil, "locks", c.o).usable(c.table)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || driver.IsUnavailable(err) != c.unavailable):
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}
