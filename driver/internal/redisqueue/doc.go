// Package redisqueue is the queue of one lock in Redis, for the drivers redis (one
// server, or a Cluster) and redlock (a majority of servers): the scripts, the names of
// the keys, the connections that callers share, the subscription by which a waiter is
// notified, and the heartbeats of waiters.
//
// The exclusive holder of a name is a plain string key, set as by SET key value NX PX ms,
// so that other clients that lock in that way and ours exclude each other. Waiters and
// shared holders are in keys beside it, which exist only while there are any;
// lua/queue.lua describes them, and lua/redlock_queue.lua for one node of Redlock.
//
// # Scripts
//
// The scripts that every lock runs, acquire and release, begin with the cases of a mutex
// as straight lines: nobody holds, queue behind a holder, release to the next waiter.
// Everything else follows the general rule, which is a page of functions that Lua creates
// in each run: that takes 7 µs before the first command, whereas a command takes 0.5 µs
// and an empty script 3.5 µs. So a contended grant costs the server a quarter of what the
// general rule alone would.
//
// Scripts run by EVALSHA, and by EVAL where the server does not know them
// (yet, or since SCRIPT FLUSH, a restart or a failover). They use no command
// newer than Redis 6.2, and no clock but the server's.
package redisqueue
