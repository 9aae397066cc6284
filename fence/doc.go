// Package fence checks fencing tokens for a resource: it refuses a holder that has
// lost its lock and has not noticed it yet. "Which guard" below names the package for
// your resource: [Guard] of this one, or sqlfence, pgxfence, redisfence or etcdfence.
//
// A lease does not protect against a pause of its holder. A process that is stopped
// between its last check of the lock and its write will write when it continues, long
// after the lock was granted to somebody else. No lock can prevent that, but the
// resource can. Every grant of a name has a greater token than all grants before it
// ([locker.Lock.Token]). The resource remembers the greatest token that it has seen,
// the fence, and refuses smaller ones with [ErrStale].
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
// Two items are sold and the stock is 9. Nobody wrote with a stale token, and still an
// update is lost. After B has read, only B may change the value: so B's read must pass
// its token too, and raise the fence. Then A's write comes after token 2 and is
// refused.
//
// So there is one operation, Do, for reads and for writes. It compares the token with
// the fence, raises the fence, and runs a function, all in one atomic step. Use it in
// one of two ways:
//
//   - Read, modify and write inside one Do. For SQL that is one transaction.
//   - If the work between the read and the write takes long, read in one Do and write
//     in a second one.
//
// It is wrong to read outside Do and then write inside it.
//
// # Which guard
//
// The guard depends on where the resource is:
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
// The first six compare tokens. They work with a lock on any store. They need only its
// name and its token, which can also be sent to another process ([Token]). They refuse
// a late holder as soon as a later one has used the resource; before that a late write
// does no harm.
//
// The last three are stricter. The store that has the lock checks that the ticket is
// held at the moment of the write: a holder whose lease has ended is refused even if
// nobody was granted after it. So nobody has changed what a holder has read under the
// lock, and only the write needs the guard.
//
// A row can be fenced without a table of fences, by a column of its own. Both
// statements compare the token and raise the fence. If no row is affected, the token
// is stale:
//
//	UPDATE stock SET fence = $1 WHERE id = $2 AND fence <= $1 RETURNING items
//	UPDATE stock SET fence = $1, items = $3 WHERE id = $2 AND fence <= $1
//
// # What it does not promise
//
//   - Only operations that go through the guard are protected, not an e-mail that a
//     late holder sends.
//   - A fence is for exclusive locks. Holders of a shared lock or of permits have
//     different tokens at the same time, and would refuse each other.
//   - Fencing is per name. Tokens of different names, or of one name on
//     different stores or under different prefixes, cannot be compared: one fence
//     belongs to one name on one store.
//   - Goroutines of one holder share its token. The guard does not exclude them from
//     each other between two calls of Do.
//   - A fence is as durable as its store. A Guard in memory ends with its process; a
//     database that has lost its last commits has lost fences too.
package fence
