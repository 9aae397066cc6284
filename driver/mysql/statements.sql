-- Statements by name. Values are inserted as numbers and hexadecimal literals, which every character set and SQL mode reads
-- alike, so each statement is one round trip whatever the DSN. Rows are locked by the primary key.
-- {now} is the time at which the statement gets to a row, after it has waited for the lock on it: UTC_TIMESTAMP() is when
-- the statement began. Queries, which wait for nothing, have that.
-- {autocommit} fails with error 1690 in a session where autocommit is off, or, on MariaDB, that is in a transaction, before any
-- row is read.
-- {primary} fails with error 1242 on a server that takes no writes, as one that was demoted, and a reader of a cluster: what it has
-- may be old, and its locks exclude nobody.
-- Statements that delete what a query finds do so in spite of sql_safe_updates: MariaDB executes the first comment, MySQL reads
-- the second.

-- autocommit: nothing, where autocommit is on.
SELECT 1 FROM DUAL WHERE {autocommit}

-- clock: the time, a number for this server and its start, and the start that tokens were last raised for.
CALL {call_clock}()

-- raise: move AUTO_INCREMENT to the clock, in 2^20ths of a millisecond, unless it is beyond that. Then a ticket may have the
-- number: error 1062. Error 1048: the server is another one.
INSERT INTO {tickets} (entry, seq, process, queued, held, shared, permits, ttl, since, owner, note)
VALUES ({raised}, (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000) << 20, 0, 0,
  (SELECT 0 FROM DUAL WHERE {here} AND {autocommit}), 0, 0, 0, UTC_TIMESTAMP(6), x'', x'')

-- raise_clear: delete the row of raise. The sweep deletes what is left.
DELETE FROM {tickets} WHERE entry = {raised} AND {autocommit}

-- raised: tokens were raised for this start of this server.
UPDATE {slots} SET start = {start} WHERE {column} = 0 AND {here} AND {autocommit}

-- take: insert the anchor of a free name, as a holder. If there is an anchor, the number in the
-- answer is 1 if it is another exclusive holder, or 0. Error 1048: the statement arrived too late, the server is another
-- one, or the slot is missing. The lease begins with the statement, which its sender counts from earlier.
INSERT INTO {tickets} (entry, name, id, process, queued, held, shared, permits, ttl, since, expires_at, owner, note)
VALUES ({name}, {name}, {id}, {process}, 0,
  (SELECT 1 FROM {slots} WHERE {column} = {slot} AND {now} < {deadline} AND {here} AND {autocommit} FOR UPDATE),
  {shared}, {permits}, {ttl}, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL {ttl} MICROSECOND, {owner}, {note})
ON DUPLICATE KEY UPDATE {tickets}.queued = {tickets}.queued + 0 * LAST_INSERT_ID(
  {tickets}.held = 1 AND {tickets}.shared = 0 AND {tickets}.id <> {id} AND {tickets}.expires_at > UTC_TIMESTAMP(6))

-- take_call: take a ticket, or queue it; see procedures.sql.
CALL {call_take}({slot}, {name}, {entry}, {id}, {process}, {shared}, {permits}, {ttl}, {mark}, {owner}, {note}, {deadline}, {start})

-- remove_call: remove a ticket by its ID or, where that is not 0, by its token.
CALL {call_remove}({name}, {entry}, {id}, {token}, {process})

-- advance_call: let a queue move on. With {mark} it is a sweep.
CALL {call_advance}({slot}, {name}, {process}, {mark})

-- wake_call: wake a process.
CALL {call_wake}('{process},')

-- release: remove a ticket that is alone.
DELETE FROM {tickets} WHERE entry = {name} AND id = {id} AND queued = 0 AND guards = 0 AND expires_at > UTC_TIMESTAMP(6) AND {autocommit}

-- due: when the first of the tickets at the head of a queue expires, up to an exclusive one: -1 if one has, or if the first
-- waits; and whether the first that waits is of a process. It is one of several in a query.
SELECT {key}, IF((SELECT held FROM {tickets} FORCE INDEX (queue) WHERE name = {name} AND id IS NOT NULL ORDER BY seq LIMIT 1) = 0, -1,
    COALESCE(GREATEST(LEAST(MIN(COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), IF(t.held, t.expires_at, p.alive_until)), -1)), 3600000000), -1), 3600000000)),
  COALESCE((SELECT process FROM {tickets} FORCE INDEX (queue) WHERE name = {name} AND held = 0 ORDER BY seq LIMIT 1) = {process}, 0)
FROM {tickets} AS t FORCE INDEX (queue) LEFT JOIN {processes} AS p ON p.id = t.process
WHERE t.name = {name} AND t.id IS NOT NULL AND {autocommit} AND t.seq <= COALESCE((SELECT seq FROM {tickets} FORCE INDEX (queue)
  WHERE name = {name} AND id IS NOT NULL AND shared = 0 ORDER BY seq LIMIT 1), 18446744073709551615)

-- first: the process of the first that waits.
SELECT process FROM {tickets} FORCE INDEX (queue) WHERE name = {name} AND held = 0 AND {autocommit} ORDER BY seq LIMIT 1

-- reap_processes: remove processes that have sent no heartbeat.
DELETE FROM {processes} WHERE id IN ({numbers}) AND alive_until <= {now}

-- renew: extend leases that have not ended; never shorten one.
UPDATE {tickets} FORCE INDEX (PRIMARY) SET provisional = 0, expires_at = GREATEST(expires_at, {now} + INTERVAL {ttl} MICROSECOND)
WHERE entry IN ({entries}) AND id IN ({ids}) AND seq IN ({seqs}) AND name IN ({names}) AND held = 1 AND expires_at > {now} AND {autocommit}

-- shorten: end a lease earlier.
UPDATE {tickets} FORCE INDEX (PRIMARY) SET expires_at = LEAST(expires_at, {now} + INTERVAL {ttl} MICROSECOND)
WHERE entry IN ({entries}) AND id IN ({ids}) AND seq IN ({seqs}) AND name IN ({names}) AND held = 1 AND expires_at > {now} AND {autocommit}

-- renewed: which of these leases have not ended.
SELECT seq FROM {tickets} WHERE entry IN ({entries}) AND id IN ({ids}) AND seq IN ({seqs}) AND name IN ({names}) AND held = 1 AND expires_at > UTC_TIMESTAMP(6) AND {autocommit}

-- heartbeat: show that a process lives. The answer is the number of the heartbeat, and 0 if the process has expired.
UPDATE {processes} SET heartbeat = LAST_INSERT_ID(heartbeat + 1), alive_until = {now} + INTERVAL {ttl} MICROSECOND
WHERE id = {process} AND alive_until > {now} AND {autocommit}

-- register: the same, of a process that may have no row yet.
INSERT INTO {processes} (id, heartbeat, alive_until, server, connection)
SELECT {process}, LAST_INSERT_ID(1), {now} + INTERVAL {ttl} MICROSECOND, {start}, {connection} FROM DUAL WHERE {autocommit}
ON DUPLICATE KEY UPDATE heartbeat = IF({processes}.alive_until > {now}, LAST_INSERT_ID({processes}.heartbeat + 1), {processes}.heartbeat + 0 * LAST_INSERT_ID(0)),
  alive_until = IF({processes}.alive_until > {now}, {now} + INTERVAL {ttl} MICROSECOND, {processes}.alive_until)

-- listening: a connection of this process sleeps.
UPDATE {processes} SET server = {start}, connection = {connection} WHERE id = {process} AND {autocommit}

-- listening_still: the same, unless somebody may not wake it.
UPDATE {processes} SET server = {start}, connection = {connection} WHERE id BETWEEN {process} AND {last} AND connection <> -1 AND {autocommit}

-- bed: take the lock that the connection which sleeps waits for.
SELECT GET_LOCK(CONCAT('locker.', {start}, '.', {connection}), 0)

-- sleep: sleep, unless a ticket of this process was granted beyond those that are known (2), or its row has another
-- connection (3). 0: nobody has woken it. 4: it has got the lock that it waits for, or nothing is granted on this server, which is read
-- only.
SELECT IF({readonly}, 4, IF((SELECT COUNT(*) FROM {tickets} WHERE process BETWEEN {process} AND {last} AND provisional = 1 AND seq NOT IN ({seqs})) > 0, 2,
  IF((SELECT COUNT(*) FROM {processes} WHERE id BETWEEN {process} AND {last} AND connection <> {connection}) > 0, 3,
    COALESCE(4 * GET_LOCK(CONCAT('locker.', {start}, '.', {connection}), {key}), 1))))

-- granted: the tickets of this process that have a provisional lease. It waits until what it reads is committed.
SELECT seq, id, heartbeat FROM {tickets} WHERE process BETWEEN {process} AND {last} AND provisional = 1 AND id IS NOT NULL LOCK IN SHARE MODE

-- self: the server and its start, and the number of the connection.
SELECT {server}, CONNECTION_ID() FROM DUAL WHERE {autocommit}

-- wake: interrupt the statement of a connection, which sleeps.
KILL QUERY {connection}

-- mine: the tickets of a process that have a provisional lease, and with {mark} those that wait.
CALL {call_mine}({process}, {mark})

-- depart: remove the row of a process.
DELETE FROM {processes} WHERE id = {process} AND {autocommit}

-- inspect: a queue as Inspect shows it.
CALL {call_show}({name})

-- list: the names that have a live ticket.
CALL {call_show}(NULL)

-- stale: the next names with tickets that expired a while ago, and the next anchors of queues that are empty.
SELECT DISTINCT COALESCE(t.name, t.entry) AS stale FROM {tickets} AS t LEFT JOIN {processes} AS p ON p.id = t.process
WHERE COALESCE(t.name, t.entry) > {after} AND {autocommit}
  AND IF(t.name IS NULL, NOT EXISTS (SELECT 1 FROM {tickets} AS o WHERE o.name = t.entry),
    IF(t.held, t.expires_at < UTC_TIMESTAMP(6) - INTERVAL 1 SECOND, p.id IS NULL))
ORDER BY stale LIMIT {most}

-- alone: delete the tickets of some names that expired a while ago and that nobody waits for, unless they are in use.
/*M! SET STATEMENT sql_safe_updates=0 FOR */ DELETE /*+ SET_VAR(sql_safe_updates=0) */ t FROM (
  SELECT entry FROM {tickets} FORCE INDEX (PRIMARY) WHERE entry IN ({names}) AND entry = name AND held = 1 AND queued = 0
    AND guards = 0 AND expires_at < UTC_TIMESTAMP(6) - INTERVAL 1 SECOND LIMIT {most} FOR UPDATE SKIP LOCKED
) AS free STRAIGHT_JOIN {tickets} AS t ON t.entry = free.entry WHERE {autocommit}

-- silent: processes that sent no heartbeat a while ago.
SELECT id FROM {processes} WHERE alive_until < UTC_TIMESTAMP(6) - INTERVAL 1 SECOND AND {autocommit}

-- sweep_turn: take the turn to sweep, if nobody has it and it is time. Only one process at a time does. A turn that ends
-- later than any does was taken before the server's clock was set back.
UPDATE {slots} SET swept_until = {now} + INTERVAL {ttl} MICROSECOND
WHERE {column} = 0 AND (swept_until <= {now} OR swept_until > {now} + INTERVAL 1 MINUTE) AND {autocommit}

-- sweep_left: how long it is until then.
SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), swept_until) FROM {slots} WHERE {column} = 0 AND {autocommit}

-- sweep_done: nobody has to sweep for a while.
UPDATE {slots} SET swept_until = {now} + INTERVAL {ttl} MICROSECOND WHERE {column} = 0 AND {autocommit}

-- guard: mark a ticket, so that its release ends the lease and does not wait for the transaction that guards it.
-- It does not touch the index queue.
UPDATE {tickets} FORCE INDEX (seq) SET guards = guards + 1
WHERE seq = {token} AND name = {name} AND held = 1 AND expires_at > {now} AND {autocommit}

-- guard_lock: lock the ticket's entry of the index queue, which renewals do not touch, and
-- not its row: so nothing is read that is not in the index.
SELECT seq FROM {tickets} FORCE INDEX (queue) WHERE name = {name} AND seq = {token} AND {primary} LOCK IN SHARE MODE

-- tx_find: whether a name has a row to lock.
SELECT 1 FROM {tx} WHERE name = {name} AND {autocommit}

-- tx_make: insert it.
INSERT IGNORE INTO {tx} (name) SELECT {name} FROM DUAL WHERE {autocommit}

-- tx_try: lock it, unless it is missing or another transaction has locked it. There is no error, since MariaDB's for
-- NOWAIT rolls back the whole transaction under innodb_rollback_on_timeout.
SELECT 1 FROM {tx} WHERE name = {name} AND {primary} FOR UPDATE SKIP LOCKED

-- tx_free: an error says that another transaction has locked it, perhaps while it inserted it.
SELECT 1 FROM {tx} WHERE name = {name} FOR UPDATE NOWAIT

-- tx_rolls_back: whether a lock wait that timed out has rolled back its whole transaction.
SELECT @@innodb_rollback_on_timeout

-- tx_lock: lock it, and insert it if it is missing. Unlike a query, that leaves no gap locked.
INSERT INTO {tx} (name) VALUES ({name}) ON DUPLICATE KEY UPDATE name = {name}

-- tx_insert: the same, if no other transaction has it. MariaDB does not wait for one, and MySQL waits up to innodb_lock_wait_timeout.
/*M! SET STATEMENT innodb_lock_wait_timeout=0 FOR */ INSERT INTO {tx} (name) VALUES ({name}) ON DUPLICATE KEY UPDATE name = {name}

-- tx_swept: wait for the end of a sweep, which has locked the first slot.
SELECT 1 FROM {slots} WHERE {column} = 0 AND {autocommit} LOCK IN SHARE MODE

-- tx_sweep: delete rows that no transaction has locked. If the first slot is in use, it waits for the next sweep.
/*M! SET STATEMENT sql_safe_updates=0 FOR */ DELETE /*+ SET_VAR(sql_safe_updates=0) */ x FROM (SELECT t.name FROM {slots} AS s STRAIGHT_JOIN {tx} AS t WHERE s.{column} = 0 LIMIT {most} FOR UPDATE SKIP LOCKED) AS idle STRAIGHT_JOIN {tx} AS x ON x.name = idle.name WHERE {autocommit}

-- schema: the version of the tables.
SELECT table_comment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = {table} AND {autocommit}

-- ping_slots: change nothing, with the rights to read, insert and update.
INSERT INTO {slots} ({column}) SELECT s.{column} FROM {slots} AS s WHERE s.{column} > 65535 AND {autocommit}
ON DUPLICATE KEY UPDATE {slots}.{column} = s.{column}

-- ping_tickets: the same of tickets.
INSERT INTO {tickets} (entry, process, queued, held, shared, permits, ttl, since, owner, note)
SELECT x'fe', 0, 0, 0, 0, 0, 0, UTC_TIMESTAMP(6), x'', x'' FROM {slots} AS s
WHERE s.{column} > 65535 AND {autocommit} FOR UPDATE
ON DUPLICATE KEY UPDATE queued = 1

-- ping_processes: the same of processes.
INSERT INTO {processes} (id, heartbeat, alive_until, server, connection)
SELECT p.id, 0, p.alive_until, 0, 0 FROM {processes} AS p WHERE p.id < 0 AND {autocommit}
ON DUPLICATE KEY UPDATE {processes}.heartbeat = p.heartbeat

-- ping_tx: the same of the rows of AcquireTx.
INSERT INTO {tx} (name) SELECT x.name FROM {tx} AS x WHERE x.name = x'' AND {autocommit}
ON DUPLICATE KEY UPDATE {tx}.name = x.name

-- ping_delete: change nothing, with the right to delete.
DELETE FROM {tickets} WHERE entry = x'fd' AND {autocommit}

-- ping_delete_processes: the same of processes.
DELETE FROM {processes} WHERE id < 0 AND {autocommit}

-- ping_delete_tx: the same of the rows of AcquireTx.
DELETE FROM {tx} WHERE name = x'' AND {autocommit}

-- ping_take: take nothing, since there is no such slot.
CALL {call_take}(65535, x'', x'', x'', 0, 0, 0, 0, 0, x'', x'', UTC_TIMESTAMP(6), 0)
