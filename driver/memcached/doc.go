// Package memcached keeps locks in Memcached 1.6 or newer, in one server or several. Read package locker first. The items
// under the prefix are the driver's alone.
//
// Memcached keeps nothing on a disk, so know first what is lost when. If a server ends, all its locks end with it. The
// next to ask is granted as soon as the server is back. The old holder believes that it holds until its next renewal,
// a third of its TTL later at the most, or until its lease is over if the server does not come back. An eviction does
// the same to one lock. During that time two may hold the name, and only the fencing token tells them apart: tokens
// grow even when the server is started again, because they begin with the wall clock. So use locks in Memcached where
// two holders for some seconds do no harm, or where the resource compares tokens (package fence); else use another
// store. By default a server evicts items when its memory is full: start it with -M, and without -C. The driver refuses
// a server that may evict, unless you accept that, and one without compare-and-swap (-C).
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
// The queue of a name is one item, changed by compare-and-swap. Package casqueue, in driver/internal, explains that,
// and how a process is found to be dead although Memcached has no sessions. The key of the item is a hash of the name,
// and the item contains the name itself; names whose hashes are equal share an item. All items have a time to live, so
// that nothing is left of locks that nobody uses: a minute after their last ticket at the most. Most recipes use add
// and a time to live. Here, in addition, waiters are granted in their order, nobody releases the lock of another after
// the end of a lease, and there are tokens, readers and permits.
//
// # Bounds
//
// With a TTL t, a live waiter is granted the lock of a holder that has died within t + 5 % + 0.5 s + a quarter of t (a
// second at most): 12 s for a TTL of 10 s. That counts from the last renewal, or from the arrival of the first waiter
// if that is later. Processes that come and go, and wait for a moment or not at all, need 3 s more, and the time from one
// to the next: what one of them has seen helps the next, by the server's clock, which shows whole seconds. The stated
// bound has these 3 s. Waiters that have died delay the queue by 5.7 s, all together, or by 7.7 s if eight or more of them
// were next to each other. The shortest lease is one second: the core ends shorter ones while its process lives. The
// longest is 28 days. The clocks of machines may differ by 30 s. If they differ more, the first token after a time in
// which nobody used a name can be less than the last one before.
//
// A queue has to fit into an item: 1 MiB, unless memcached -I says otherwise, is about 6,000 waiters for one name.
// A ticket for which there is no space left is refused with an error that says so. A server whose memory is full
// refuses all that has to be written, also renewals and releases. So locks of other names are refused when half of the
// memory is used. What other programs store there can still fill it, and the memory of a server with less than 32 MB (-m)
// is divided too coarsely: use a server for locks alone, of that size.
//
// # Costs
//
// Acquire and Release of a free lock take one request each, which writes the item and reads it back. The first ticket of a
// process that has to wait is only written. One more is needed if this process has not used the name in the last 30 s, if
// another one has used it since, or for tickets that it queues right after a first one. A hand-off to another
// process takes five or six. A process that waits sends 11 to 20 small requests a second and a heartbeat each second,
// however many locks it waits for (twice as many if it waited for one alone first), and more if they are held for less than a second. A process that holds locks sends one
// heartbeat for all of them in each round of renewals, reads their items, a hundred with one request, and writes each
// item once a minute so that the server does not forget it.
//
// A process that is refused, without having seen the holder before, reads the holder's heartbeat and the server's clock
// (stats), and writes what it has seen, and the heartbeat again, unless the item says it: four requests more. Until the
// holder's next sign of life the next such processes write nothing. If others wait, their heartbeats count too, and that
// of the next one is written again, with one more request. A wait that ends without a grant costs the same, in the
// background.
//
// Each second, a process that waits also reads the heartbeats of the holder and of the eight waiters ahead of it, and
// the whole queue, so long queues of many processes are expensive. On two busy processors a median hand-off took 1.1 ms
// with 16 clients of one process, 2 ms with 16 processes, and with 256 processes 17 ms, which took two to six seconds to
// queue when they came at once.
//
// # Several servers
//
// Each name is on one of the servers, by rendezvous hashing. More servers do not survive more: a server that is down
// takes its names with it. All programs must name the same servers, in any order. To change them, stop all programs
// first: two programs that disagree have different locks, and no error says so. The driver takes cache1, Cache1 and
// cache1:11211 for one server, and an IP address for the same however it is spelled. It cannot know that two names, or a
// name and an address (localhost and 127.0.0.1), mean the same server: name each server in one way.
package memcached
