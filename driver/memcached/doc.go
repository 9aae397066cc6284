// Package memcached keeps locks in Memcached 1.6 or newer, in one server or several.
//
// Memcached keeps nothing on a disk, so know first what is lost when. If a server ends, all its locks end with it:
// the next to ask is granted as soon as the server is back, while a holder goes on believing that it holds until
// its next renewal, a third of its TTL later at the most, or until its lease is over if the server does not come
// back. An eviction does the same to one lock. During that time two may hold the name, and only the fencing token
// tells them apart: tokens grow all the same, from one life of the server to the next, because they begin with the
// wall clock. So use locks in Memcached where two holders for some seconds do no harm, or where the resource
// compares tokens (package fence); else use another store. A server that may evict (it does by default when
// its memory is full) is refused, unless you accept that: start it with -M.
//
//	d, err := memcached.New([]string{"cache1:11211", "cache2:11211"})
//	l := locker.New(d)
//	l, err := locker.Open(ctx, "memcached://cache1:11211,cache2:11211")
//
// Parameters of the URL are prefix, ttl, timeout and dial_timeout (2s each), evictions (refuse, or accept), those
// about TLS (tls=true, ca, cert, key, server_name, insecure_skip_verify), and password_file. A user and a password
// are those of the server's -Y file.
//
// # How it works
//
// The queue of a name is one item, changed by compare-and-swap; package casqueue, in driver/internal, says how, and
// how a process is found to be dead although Memcached has no sessions. The key of the item is a hash of the name,
// which is in the item itself; names whose hashes are equal share an item. All items have a time to live, so that
// nothing is left of locks that nobody uses: a minute after their last ticket at the most. Unlike with add and a
// time to live, as most recipes have it, waiters are granted in their order, nobody releases the lock of another
// after the end of a lease, and there are tokens, readers and permits.
//
// # Bounds
//
// With a TTL t, the lock of a holder that has died goes to a live waiter within t + 5 % + 0.5 s + a quarter of t (a
// second at most), counted from the last renewal or from when the first waiter has come, whichever is later; with
// 10 s that is 12 s. Waiters that have died delay the queue by 5.7 s, all together, and by 7.7 s if eight or more of
// those next to each other died. The shortest lease is one second: the core ends shorter ones while its process
// lives. The longest is 30 days, less two minutes. The clocks of machines may differ by 30 s: else the first token
// after a time in which nobody used a name can be less than the last one before.
//
// A queue has to fit into an item: 1 MiB, unless memcached -I says otherwise, is about 6,000 waiters for one name.
// A ticket for which there is no space left is refused with an error that says so. A server whose memory is full
// refuses all that has to be written: new tickets, renewals and releases. The locks that it has stay, until it
// forgets them a minute after their leases.
//
// # Costs
//
// Acquire and Release of a free lock are one request each, a write and a reading of it, and one more if this process
// has not used the name in the last 30 s or another one has used it since. A hand-off to another process takes five
// or six. A process that waits sends 10 to 20 small requests a second and a heartbeat each second, however many locks
// it waits for. A process that holds locks sends one heartbeat for all of them in each round of renewals, reads their
// items, a hundred with one request, and writes each item once a minute so that the server does not forget it.
//
// A process that waits also reads the heartbeats of the holder and of eight waiters before it, and the whole queue,
// each second, so long queues of many processes are dear: on two busy processors a hand-off took 2 to 10 ms with 16
// processes. With 256 it took 17 ms in the one run that was measured, and these took two to six seconds to queue when
// they came at once.
//
// # Several servers
//
// Each name is on one of the servers, by rendezvous hashing. They make nothing more available: a server that is
// down takes its names with it. All programs must name the same servers, in any order; to change them, stop all
// programs, since two that disagree have different locks.
package memcached
