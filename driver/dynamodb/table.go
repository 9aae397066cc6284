package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

const (
	createLimit = time.Minute            // until a table has to be active
	createPoll  = 300 * time.Millisecond // the poll interval meanwhile
)

// missing is the error for a table that is not there.
func (s *store) missing(err error) error {
	return fmt.Errorf("%w: in %s there is no table %s; create it with \"aws dynamodb create-table --table-name %[3]s --billing-mode PAY_PER_REQUEST "+
		"--attribute-definitions AttributeName=%[4]s,AttributeType=S --key-schema AttributeName=%[4]s,KeyType=HASH\" and \"aws dynamodb "+
		"update-time-to-live --table-name %[3]s --time-to-live-specification Enabled=true,AttributeName=%[5]s\", or have it created with create=true",
		err, s.client.Options().Region, s.table, idAttribute, expiresAttribute)
}

// check checks the table, and creates it if it may.
func (s *store) check(ctx context.Context) error {
	table, err := s.describe(ctx)
	if s.o.create && (errors.As(err, new(*types.ResourceNotFoundException)) || err == nil && table.TableStatus == types.TableStatusCreating) {
		table, err = s.create(ctx)
	}
	if err != nil {
		return err
	}
	return s.usable(table)
}

func (s *store) describe(ctx context.Context) (*types.TableDescription, error) {
	var table *types.TableDescription
	err := s.read(ctx, func(ctx context.Context) error {
		asked := time.Now()
		out, err := s.client.DescribeTable(ctx, &sdk.DescribeTableInput{TableName: &s.table}, once)
		if err == nil {
			table = out.Table
			s.clock.note(out.ResultMetadata, asked)
		}
		return err
	})
	if err == nil && table == nil {
		err = driver.Unavailable(errBroken)
	}
	return table, err
}

// usable returns an error for what is wrong with a table.
func (s *store) usable(t *types.TableDescription) error {
	key := ""
	for _, k := range t.KeySchema {
		key += aws.ToString(k.AttributeName) + " " + string(k.KeyType) + " "
	}
	for _, a := range t.AttributeDefinitions {
		if aws.ToString(a.AttributeName) == idAttribute {
			key += string(a.AttributeType)
		}
	}
	const want = idAttribute + " HASH S"
	switch {
	case t.TableStatus == types.TableStatusCreating:
		return driver.Unavailable(fmt.Errorf("the table %s is still being created", s.table))
	case t.TableStatus != types.TableStatusActive && t.TableStatus != types.TableStatusUpdating:
		return driver.Unavailable(fmt.Errorf("the table %s is %s", s.table, t.TableStatus))
	case key != want:
		return fmt.Errorf("the table %s has the key %q, want %q: a partition key %s of text, and no sort key", s.table, key, want, idAttribute)
	case replicated(t) && !s.o.replicas:
		return fmt.Errorf("the table %s is global with eventual consistency, where two regions can hold the same lock: use a table of one region, "+
			"or one with strong consistency, or accept that with replicas=accept if all programs use this region", s.table)
	}
	return nil
}

// replicated reports whether a table is global with eventual consistency, as all global tables of the first version
// are.
func replicated(t *types.TableDescription) bool {
	return aws.ToString(t.GlobalTableVersion) == "2017.11.29" ||
		len(t.Replicas) > 0 && t.MultiRegionConsistency != types.MultiRegionConsistencyStrong
}

// create creates the table, unless another process does, and returns it when it is active.
func (s *store) create(ctx context.Context) (*types.TableDescription, error) {
	ctx, cancel := context.WithTimeout(ctx, createLimit)
	defer cancel()
	err := s.do(ctx, func(ctx context.Context) error {
		_, err := s.client.CreateTable(ctx, &sdk.CreateTableInput{
			TableName:            &s.table,
			BillingMode:          types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(idAttribute), AttributeType: types.ScalarAttributeTypeS}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(idAttribute), KeyType: types.KeyTypeHash}},
		}, once)
		return err
	})
	created := err == nil
	if err != nil && !errors.As(err, new(*types.ResourceInUseException)) {
		return nil, fmt.Errorf("create table %s: %w", s.table, err)
	}
	for {
		table, err := s.describe(ctx)
		switch {
		case errors.As(err, new(*types.ResourceNotFoundException)): // not known everywhere yet
		case err != nil:
			return nil, err
		case table.TableStatus != types.TableStatusCreating && created:
			return table, s.removeOld(ctx)
		case table.TableStatus != types.TableStatusCreating:
			return table, nil
		}
		if !retry.Sleep(ctx, createPoll, nil) {
			return nil, driver.Unavailable(fmt.Errorf("the table %s is still being created", s.table))
		}
	}
}

// removeOld has DynamoDB remove the items that have expired.
func (s *store) removeOld(ctx context.Context) error {
	err := s.do(ctx, func(ctx context.Context) error {
		_, err := s.client.UpdateTimeToLive(ctx, &sdk.UpdateTimeToLiveInput{
			TableName:               &s.table,
			TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(expiresAttribute), Enabled: aws.Bool(true)},
		}, once)
		return err
	})
	if err != nil {
		return fmt.Errorf("the table %s was created, but its time to live was not enabled: %w", s.table, err)
	}
	return nil
}
