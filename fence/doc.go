// Package fence is the resource's side of the fencing token: it refuses a
// holder that has lost its lock and does not know it yet.
//
// A lease protects as well as the clocks and the pauses of its holder allow.
// A process that is stopped between its last check of the lock and its write
// writes when it wakes, long after the lock was granted to somebody else. No
// lock can prevent that; the resource can. Every grant of a name has a greater
// token than all grants before ([locker.Lock.Token]). The resource remembers the
// greatest token it has seen, the fence, and refuses smaller ones with
// [ErrStale].
//
// # The read raises the fence
//
// It is not enough to compare the token when writing. With a stock of 10, token
// 1 for A and token 2 for B:
//
//	A reads 10              and is paused; its lease ends
//	B reads 10              under the lock
//	A wakes and writes 9    accepted: the fence has seen no token yet
//	B writes 9              accepted: 2 is greater than 1
//
// Two items are sold and the stock is 9. Nobody wrote with a stale token, and
// an update is lost all the same. What B has read must not change any more
// except by B: so B's read, too, has to hand in its token and raise the fence.
// Then A's write comes after token 2 and is refused.
//
// So there is one operation here, Do, for reads and for writes. It compares the
// token with the fence, raises the fence, and runs a function, all in one atomic
// step. Use it in one of two ways:
//
//   - Read, modify and write inside one Do. That is the shortest, and for SQL
//     one transaction.
//   - Where the work between the read and the write takes long, read in one Do
//     and write in a second one.
//
// Wrong is a read outside of Do, followed by a write inside it.
//
// # Which guard
//
// What runs Do depends on where the resource lives:
//
//	resource                        guard
//	memory of one process           Guard
//	PostgreSQL by database/sql      sqlfence.Do with a table of fences
//	MySQL, MariaDB                  sqlfence.Do with a table of fences
//	PostgreSQL by pgx               pgxfence.Do with a table of fences
//	Redis                           redisfence.Update, or a redisfence.Script
//	etcd                            etcdfence.Update, or etcdfence.Do
//	PostgreSQL that has the lock    pgxfence.Do with a *postgres.Driver
//	MySQL that has the lock         sqlfence.Do with a *mysql.Driver
//	etcd that has the lock          etcdfence.DoWhileHeld with the *etcd.Driver
//
// The first six compare tokens. They work with a lock on any store, opened by URL
// or made from a client: they need its name and its token, which a request to
// another process can carry ([Token]). They refuse a late holder as soon as a
// later one has used the resource; before that a late write harms nobody.
//
// The last three are stricter. The store that has the lock itself checks that the
// ticket is held at the moment of the write: a holder whose lease has ended is
// refused even if nobody came after it. What such a holder has read
// under the lock nobody has changed since, so the write alone is guarded.
//
// One row can be fenced without a table of fences, by a column of its own. Both
// statements compare and raise; if no row is affected the token is stale:
//
//	UPDATE stock SET fence = $1 WHERE id = $2 AND fence <= $1 RETURNING items
//	UPDATE stock SET fence = $1, items = $3 WHERE id = $2 AND fence <= $1
//
// # What it does not promise
//
//   - Only what goes through the guard is protected. An e-mail that a late holder
//     sends is sent.
//   - A fence is for exclusive locks. Holders of a shared lock or of permits have
//     different tokens at the same time, and would refuse each other.
//   - Fencing is per name. Tokens of different names, or of one name on
//     different stores or under different prefixes, cannot be compared: one fence
//     belongs to one name on one store.
//   - Goroutines of one holder share its token, and the guard does not keep them
//     apart between two Do.
//   - A fence is as durable as what holds it. A Guard in memory forgets with
//     its process; a database that lost its last commits has lost fences too.
package fence
