// Package redisqueue is the queue of one lock in Redis, for the drivers redis (one
// server, or a Cluster) and redlock (a majority of servers): the scripts that keep it, the
// names of its keys, the way to the server that callers share, the subscription by which
// a waiter is notified, and the heartbeats of what waits.
//
// The exclusive holder of a name is a plain string key, set as by
// SET key value NX PX ms, so that other clients that lock in that way are kept
// out by ours and ours by them. What else a queue needs (who waits, who holds
// with others) lies in keys beside it that are there only while somebody waits
// or holds with others; lua/queue.lua describes them, and lua/redlock_queue.lua for one
// node of Redlock.
//
// # Scripts
//
// The scripts that every lock runs, acquire and release, begin with the cases of a
// mutex as straight lines: nobody holds, queue behind a holder, release to the next
// waiter. Everything else follows the general rule, which is a page of functions that
// Lua makes anew in each run: 7 µs before the first command, where a command takes 0.5
// and an empty script 3.5. So a contended grant costs the server a quarter of what the
// general rule alone would.
//
// Scripts run by EVALSHA, and by EVAL where the server does not know them
// (yet, or since SCRIPT FLUSH, a restart or a failover). They use no command
// newer than Redis 6.2, and no clock but the server's.
package redisqueue
