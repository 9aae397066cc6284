// Package dynamodb keeps locks in a table of Amazon DynamoDB. Read package locker first, then the next two paragraphs,
// which say what loses a lock. The table's items are the driver's alone.
//
// DynamoDB stores each write in three data centres before it answers, and every reading here is strongly consistent, so
// a lock survives what DynamoDB survives. A lock is lost when its item is lost: with the table, or because somebody
// deletes or restores items. Restore nothing, but begin with an empty table: the tickets of a backup block their names
// for a TTL.
//
// Two regions of a global table can hold the same lock at the same time, because the later write wins there, whatever
// its condition was. The driver refuses such a table, unless it is strongly consistent, or you accept it because all
// programs use the same region. A program that runs already does not notice when a replica is added.
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
// Without the second command, one item of every name that was used stays, and three of every process; so they do in a
// global table with strong consistency, which has no time to live. That costs storage, and no lock.
//
// A program needs these rights, and for create=true dynamodb:CreateTable and dynamodb:UpdateTimeToLive too:
//
//	{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
//	    "Action": ["dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:DescribeTable"],
//	    "Resource": "arn:aws:dynamodb:eu-west-1:123456789012:table/locks"}]}
//
// # How it works
//
// The queue of a name is one item, replaced on condition that it still has the version that was read. Package casqueue,
// in driver/internal, explains that, and how a process is found to be dead although DynamoDB has no sessions. The key
// of the item is a hash of the name, and the item contains the name itself; names whose hashes are equal share an item.
// Versions are random, so no two contents ever have the same one, even if the table is made anew. The driver switches
// off the SDK's retries, also those of a client that you pass: a conditional write that is sent twice may fail because
// it has been done. The driver itself finds out what became of an unanswered write. If a write fails, it also checks
// the item that DynamoDB returns, in case something on the way has sent the write twice.
//
// DynamoDB charges a write for the whole item, even if it changes one attribute (UpdateItem), so the queue is written as
// a whole. What is longer than a writing unit, a queue of more than five tickets or so, is written as the gzip stream of
// the document.
//
// Every item has a time after which nobody needs it, at the latest 65 s after the last ticket of its name. DynamoDB
// removes such items within a few days, without a charge, if the table's time to live is enabled. Until then the driver
// takes them for empty: a program that only tries gets the lock of a process that died two minutes ago, and a greater
// token. Those times are by DynamoDB's clock, which every answer contains. No lock depends on the clock of a client,
// though DynamoDB refuses requests from machines whose clocks are wrong by minutes. Once an item is removed, the tokens
// of its name begin again with the clock of the machine that makes the next item.
//
// # Bounds
//
// With a TTL t, a live waiter is granted the lock of a holder that has died within t + 5 % + 1.1 s + a quarter of t (a
// second at most): 12.6 s for a TTL of 10 s. That counts from the last renewal, or from the arrival of the first waiter
// if that is later. Processes that come and go, and wait for a moment or not at all, need 3 s more, and the time from one
// to the next: what one of them has seen helps the next, by DynamoDB's clock, which shows whole seconds. The stated bound
// has these 3 s, of which one allows for differences between the clocks of DynamoDB's machines. Waiters that have died delay the queue by 6.3 s, all together, or by 8.3 s if eight or more of them
// were next to each other. All that holds while DynamoDB answers within 250 ms, as it does to other continents too;
// mostly it takes some milliseconds.
//
// The shortest lease is 2.5 s: the core ends shorter ones while its process lives. Give a lock that is renewed no
// shorter TTL, because a few slow requests would lose it. A lease has time for one unanswered request if it is more
// than three times as long as the timeout.
//
// A queue has to fit into an item of 400 KB before it is compressed, which is about 2,000 waiters for one name. A ticket
// for which there is no space left is refused with an error that says so. One item takes 1,000 writing units a second.
// DynamoDB throttles what exceeds that, or the throughput of the table; the error is [driver.ErrUnavailable].
//
// # Costs
//
// A writing unit is a write of 1 KB, a reading unit a consistent reading of 4 KB; a ticket takes some 150 bytes, and some
// 65 in a queue that is compressed.
//
//	acquire and release, free lock    2 writes; 1 reading if this process has not used the name in the last 30 s
//	hand-off to another process       3 to 5 readings and 2 to 3 writes between 2 processes, 21 and 5 among 16, 113 and 16
//	                                  among 64
//	a process that waits, a second    13 to 22 readings and 1 write, if it waits for one lock that is held for a second
//	                                  or longer; one more reading for each further lock, and for each of the eight
//	                                  processes before it; 20 more if it waited for one lock alone first
//	a try that is refused             1 reading; if the process has not seen the holder before, 1 more and, for the first one
//	                                  after each sign of life of the holder, 2 writes; if others wait, also after theirs, and 1
//	                                  reading more for each of the nearest eight, and 1 write more for the next one
//	a lock that is held, an hour      360 readings and 72 writes with the default TTL of 30 s
//	a process that holds, an hour     360 writes for all locks that it has acquired within a second, 3,600 at most
//
// On DynamoDB Local, on two busy processors, a median hand-off took 9 ms among 16 processes. 256 were too many for
// that server: some had no answer within 10 s.
//
// A hand-off among many processes is two writes, the next ticket and the release, and a third one, a notification, if the
// queue has more than 20 tickets or so. The first two cost as much as the queue is long, 2 units each among 16 and 4 among
// 64. A fifth to a quarter of a write is lost to another process's. The rest are heartbeats, one a second from each process
// that waits. So a hand-off costs the more the longer locks are held; the figures above are those of 28 and 12 hand-offs a second.
//
// A shorter TTL costs more: each round of renewals reads the lock and writes a heartbeat. A write that fails, because
// another process has changed the item, costs as much as one that is done. If many processes wait for one lock for a
// long time, another store is cheaper.
package dynamodb
