// Package dynamodb keeps locks in a table of Amazon DynamoDB.
//
// DynamoDB has each write in three data centres before it answers, and every reading here is strongly consistent, so
// a lock survives what DynamoDB survives. A lock is lost when its item is: with the table, or by whoever deletes or
// restores items. Restore nothing, but begin with an empty table: the tickets of a backup block their names for a TTL.
//
// Two regions of a global table can hold the same lock at the same time, because the later write wins there whatever
// its condition was; such a table is refused, unless it is strongly consistent, or you accept it since all programs
// use the same region. Programs that run already do not notice a replica that is added.
//
//	d, err := dynamodb.New(client, "locks")
//	l := locker.New(d)
//	l, err := locker.Open(ctx, "dynamodb://locks?region=eu-west-1")
//
// Parameters of the URL are prefix, ttl, region and endpoint (by default the AWS SDK's), create, replicas (refuse, or
// accept), timeout and dial_timeout (2s each), and pool_size (64). Credentials are those that the SDK finds; the URL
// has none.
//
// # The table
//
// The partition key is the text id, and there is no sort key. The table is checked when it is first used. A missing
// one is an error, unless you have it created (create=true, [WithCreate]):
//
//	aws dynamodb create-table --table-name locks --billing-mode PAY_PER_REQUEST \
//	    --attribute-definitions AttributeName=id,AttributeType=S --key-schema AttributeName=id,KeyType=HASH
//	aws dynamodb update-time-to-live --table-name locks \
//	    --time-to-live-specification Enabled=true,AttributeName=expires
//
// Without the second command, and in a global table with strong consistency, which has no time to live, an item stays
// of every name that was used, and three of every process: that costs storage, and no lock.
//
// A program needs these rights, and for create=true dynamodb:CreateTable and dynamodb:UpdateTimeToLive too:
//
//	{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
//	    "Action": ["dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:DescribeTable"],
//	    "Resource": "arn:aws:dynamodb:eu-west-1:123456789012:table/locks"}]}
//
// # How it works
//
// The queue of a name is one item, replaced on condition that it still has the version that was read; package
// casqueue, in driver/internal, says how, and how a process is found to be dead although DynamoDB has no sessions.
// The key of the item is a hash of the name, which is in the item itself; names whose hashes are equal share an item.
// Versions are random, so none is ever that of another content, also after the table was made anew. The SDK's retries
// are off, also those of a client that you pass: a conditional write that is sent twice may fail because it has been
// done. The driver repeats what was not answered itself, after a reading; and it looks at the item that DynamoDB
// returns with a failure, in case something on the way has sent it twice.
//
// Every item has a time after which nobody needs it, at the latest 65 s after the last ticket of a name. DynamoDB
// removes such items within a few days, without a charge, if the table's time to live is enabled. Until then they
// count as if they were empty: a program that only tries gets the lock of a process that died two minutes ago, and
// its token is greater. Those times are of DynamoDB's clock, which every answer has; no lock depends on the clock of
// a client, though DynamoDB refuses requests from machines whose clocks are wrong by minutes. Once an item is removed,
// the tokens of its name begin again with the clock of the machine that makes the next.
//
// # Bounds
//
// With a TTL t, the lock of a holder that has died goes to a live waiter within t + 5 % + 1.1 s + a quarter of t (a
// second at most), counted from the last renewal or from when the first waiter has come, whichever is later; with
// 10 s that is 12.6 s. Waiters that have died delay the queue by 6.3 s, all together, and by 8.3 s if eight or more of
// those next to each other died. All that is so as long as DynamoDB answers within 250 ms, as it does to other
// continents too; mostly it takes some milliseconds.
//
// The shortest lease is 2.5 s: the core ends shorter ones while its process lives. A lock that is renewed should have no
// shorter one, since a few slow requests lose it. A lease has time for one request that is not answered, if it is more
// than three times the timeout.
//
// A queue has to fit into an item of 400 KB, which is about 2,000 waiters for one name. A ticket for which there is
// no space left is refused with an error that says so. One item bears 1,000 writing units a second; what exceeds
// that, or the throughput of the table, is throttled, and reported as [driver.ErrUnavailable].
//
// # Costs
//
// A writing unit is a write of 1 KB, a reading unit a consistent reading of 4 KB; a ticket takes some 200 bytes.
//
//	acquire and release, free lock    2 writes; 1 reading if this process has not used the name in the last 30 s
//	hand-off to another process       3 to 5 readings and 3 to 4 writes between 2 that contend, 17 and 9 among 16
//	a process that waits, a second    12 to 22 readings and 1 write, if it waits for one lock; one more reading for
//	                                  each further lock, and for each of the eight processes before it
//	a lock that is held, an hour      360 readings and 72 writes with the default TTL of 30 s
//	a process that holds, an hour     360 writes for all locks that it has acquired within a second, 3,600 at most
//
// On DynamoDB Local, on two busy processors, a hand-off took 10 ms between 2 processes and 22 ms among 16 in the median.
// 256 processes that asked for one lock at the same instant were too many for it: some had no answer within 10 s.
//
// The shorter the TTL, the more: a lock is read, and a heartbeat written, in each round of renewals. A write that comes
// too late, because another process has changed the item, costs as much as one that is done. If many processes wait
// for the same lock for long, another store is cheaper.
package dynamodb
