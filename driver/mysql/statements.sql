-- Statements by name. Values are inserted as numbers and hexadecimal literals, which
-- every character set and SQL mode reads alike, so each statement is one round trip
-- whatever the DSN. Each locks few rows, by a unique key. Deadlocks are possible all the
-- same, since the indexes lock gaps for a moment. A statement that a deadlock ended has
-- changed nothing and is sent again.
-- {now} is the time at which the statement gets to a row, after it has waited for the lock on it: UTC_TIMESTAMP() is when
-- the statement began. Queries, which wait for nothing, have that.
-- {autocommit} fails with error 1690 in a session where autocommit is off, before any row is read.
-- {edition} fails with error 1054 where the tables are of another version. It is in the statements that a program
-- may begin with and that do not use {slots}.

-- autocommit: nothing, where autocommit is on.
SELECT 1 FROM DUAL WHERE {autocommit}

-- clock: the time for deadlines, a number for this server and its start, and the start that tokens were last
-- raised for.
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), {server}, COALESCE((SELECT start FROM {slots} WHERE {column} = 0), 0)
FROM DUAL WHERE {autocommit}

-- raise: move AUTO_INCREMENT to the clock, in 256ths of a millisecond, unless it is beyond that. Then a ticket may have the
-- number: error 1062. Error 1048: the server is another one.
INSERT INTO {tickets} (entry, seq, owner, note, shared, permits, held, since, expires_at)
VALUES ({raised}, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) * 256 DIV 1000, x'', x'', 0, 0,
  (SELECT 0 FROM DUAL WHERE {here} AND {autocommit}), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))

-- raise_clear: delete the row of raise. The sweep deletes what is left.
DELETE FROM {tickets} WHERE entry = {raised} AND {autocommit}

-- raised: tokens were raised for this start of this server.
UPDATE {slots} SET start = {start} WHERE {column} = 0 AND {here} AND {autocommit}

-- acquire_free: insert the anchor of a free name, as a holder. If there is an anchor, the server reports 0 as the
-- new number, and with {follow} the anchor is marked to stay, and is not idle any more. Error 1048: the statement
-- arrived too late, the server is another one, or the slot is missing.
INSERT INTO {tickets} (entry, name, id, owner, note, shared, permits, held, since, expires_at)
VALUES ({name}, {name}, {id}, {owner}, {note}, {shared}, {permits},
  (SELECT 1 FROM {slots} WHERE {column} = {slot} AND {now} < {deadline} AND {here} AND {autocommit} FOR UPDATE),
  {now}, {now} + INTERVAL {ttl} MICROSECOND)
ON DUPLICATE KEY UPDATE {tickets}.followed = GREATEST({tickets}.followed, {follow}, LAST_INSERT_ID(0)),
  {tickets}.name = IF({tickets}.followed AND {tickets}.id IS NULL, NULL, {tickets}.name)

-- acquire_idle: take the idle anchor that this process has left, if nothing has changed in it.
UPDATE {tickets} SET turn = turn + 1, id = {id}, owner = {owner}, note = {note},
  since = {now}, expires_at = {now} + INTERVAL {ttl} MICROSECOND
WHERE entry = {name} AND (seq << 12) + turn = {token} AND name = {name} AND id IS NULL AND followed = 0
  AND {now} < {deadline} AND {here} AND {autocommit}

-- enqueue: insert a waiter after an anchor that is marked to stay and is not the ticket's own. Error 1048: there
-- is no such anchor, or as with acquire_free. The rows are locked in the order of acquire_free: the slot, then the
-- anchor. It is not INSERT ... SELECT, which under innodb_autoinc_lock_mode=1, MariaDB's default, locks
-- AUTO_INCREMENT of the table until it is committed.
INSERT INTO {tickets} (entry, name, id, owner, note, shared, permits, held, since, expires_at)
VALUES ({entry}, {name}, {id}, {owner}, {note}, {shared}, {permits},
  (SELECT 0 FROM (SELECT s.{column} FROM {slots} AS s STRAIGHT_JOIN {tickets} AS a ON a.entry = {name}
    WHERE s.{column} = {slot} AND {now} < {deadline} AND {here} AND {autocommit}
      AND a.followed = 1 AND (a.id IS NULL OR a.id <> {id}) LIMIT 1 FOR UPDATE) AS x),
  {now}, {now} + INTERVAL {liveness} MICROSECOND)

-- enqueue_granted: insert a holder after an anchor, if it is granted now. Nobody enqueues while the two rows are
-- locked. An exclusive ticket counts for all permits. Error 1048: as with enqueue, or the ticket is not granted.
INSERT INTO {tickets} (entry, name, id, owner, note, shared, permits, held, since, expires_at)
VALUES ({entry}, {name}, {id}, {owner}, {note}, {shared}, {permits},
  (SELECT 1 FROM (SELECT s.{column} FROM {slots} AS s STRAIGHT_JOIN {tickets} AS a ON a.entry = {name}
    WHERE s.{column} = {slot} AND {now} < {deadline} AND {here} AND {autocommit}
      AND a.followed = 1 AND (a.id IS NULL OR a.id <> {id})
      AND (SELECT COALESCE(SUM(IF(t.shared, 1, {limit})), 0) FROM {tickets} AS t
        WHERE t.name = IF(s.{column} = {slot}, {name}, NULL)) < {limit}
    LIMIT 1 FOR UPDATE) AS x),
  {now}, {now} + INTERVAL {ttl} MICROSECOND)

-- head: the first tickets of a queue. Under READ UNCOMMITTED this and the next queries may read a row whose ticket
-- was released since the row was found: its id and name are NULL.
SELECT {key}, (seq << 12) + turn, COALESCE(id, x''), shared, permits, expires_at <= UTC_TIMESTAMP(6),
  TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at)
FROM {tickets} WHERE name = {name} AND {autocommit} ORDER BY seq LIMIT {most}

-- find: the token of a ticket.
SELECT (seq << 12) + turn FROM {tickets} WHERE entry IN ({entry}, {name}) AND id = {id} AND name = {name} AND {autocommit}

-- claim: make holders of tickets that were found to be grantable. They still are, because tickets ahead of a
-- ticket can only go away.
UPDATE {tickets} SET held = 1, since = {now}, expires_at = {now} + INTERVAL {ttl} MICROSECOND
WHERE seq IN ({seqs}) AND held = 0 AND expires_at > {now} AND {autocommit}

-- claimed: which of these tickets are held.
SELECT (seq << 12) + turn FROM {tickets} WHERE seq IN ({seqs}) AND held = 1 AND expires_at > UTC_TIMESTAMP(6) AND {autocommit}

-- heartbeat: show that the process of these waiters lives.
UPDATE {tickets} SET expires_at = {now} + INTERVAL {liveness} MICROSECOND
WHERE seq IN ({seqs}) AND held = 0 AND expires_at > {now} AND {autocommit}

-- alive: which of these tickets have not expired.
SELECT (seq << 12) + turn FROM {tickets} WHERE seq IN ({seqs}) AND expires_at > UTC_TIMESTAMP(6) AND {autocommit}

-- renew: extend leases that have not ended; never shorten one.
UPDATE {tickets} SET expires_at = GREATEST(expires_at, {now} + INTERVAL {ttl} MICROSECOND)
WHERE seq IN ({seqs}) AND id IN ({ids}) AND name IN ({names}) AND held = 1 AND expires_at > {now} AND {autocommit}

-- shorten: end a lease earlier.
UPDATE {tickets} SET expires_at = LEAST(expires_at, {now} + INTERVAL {ttl} MICROSECOND)
WHERE seq IN ({seqs}) AND id IN ({ids}) AND name IN ({names}) AND held = 1 AND expires_at > {now} AND {autocommit}

-- renewed: which of these leases have not ended.
SELECT (seq << 12) + turn FROM {tickets}
WHERE seq IN ({seqs}) AND id IN ({ids}) AND name IN ({names}) AND held = 1 AND expires_at > UTC_TIMESTAMP(6) AND {autocommit}

-- leave: release a ticket and its anchor.
DELETE FROM {tickets} WHERE entry = {name} AND seq = {seq} AND id = {id} AND followed = 0 AND guards = 0 AND {autocommit}

-- idle: release a ticket and leave its anchor idle.
UPDATE {tickets} SET id = NULL, expires_at = UTC_TIMESTAMP(6) + INTERVAL {idle} MICROSECOND
WHERE entry = {name} AND seq = {seq} AND id = {id} AND followed = 0 AND guards = 0 AND {here} AND {autocommit}

-- idle_clear: delete idle anchors.
DELETE FROM {tickets} WHERE entry IN ({names}) AND name IS NOT NULL AND id IS NULL AND {autocommit}

-- vacate: release a ticket and leave its anchor for the tickets that follow.
UPDATE {tickets} SET name = NULL, id = NULL, held = 0, owner = x'', note = x''
WHERE entry = {name} AND seq = {seq} AND id = {id} AND guards = 0 AND {autocommit}

-- dequeue: release a ticket after an anchor.
DELETE FROM {tickets} WHERE entry = {entry} AND seq = {seq} AND name = {name} AND guards = 0 AND {autocommit}

-- end_lease: end the lease of a ticket that a transaction may guard. To delete it could mean to wait for that
-- transaction. The queue moves on when the ticket is reaped.
UPDATE {tickets} SET expires_at = UTC_TIMESTAMP(6)
WHERE seq = {seq} AND name = {name} AND id = {id} AND held = 1 AND guards > 0 AND {autocommit}

-- close: delete the anchor of a queue that is empty. It locks the anchor first.
DELETE a FROM {tickets} AS a LEFT JOIN {tickets} AS t ON t.name = {name}
WHERE a.entry = {name} AND a.name IS NULL AND t.seq IS NULL AND {autocommit}

-- expired: the tickets of a queue that have expired.
SELECT (seq << 12) + turn FROM {tickets} WHERE name = {name} AND expires_at <= UTC_TIMESTAMP(6) AND {autocommit} ORDER BY seq LIMIT 1000

-- reap_lock: lock those of them that no transaction guards.
SELECT (seq << 12) + turn FROM {tickets} FORCE INDEX (queue)
WHERE name = {name} AND seq IN ({seqs}) AND expires_at <= UTC_TIMESTAMP(6) FOR UPDATE SKIP LOCKED

-- reap: delete them, but for anchors that have to stay.
DELETE FROM {tickets} WHERE seq IN ({seqs}) AND (entry <> name OR followed = 0) AND {autocommit}

-- reap_anchors: remove their tickets, and leave those anchors for the tickets that follow.
UPDATE {tickets} SET name = NULL, id = NULL, held = 0, owner = x'', note = x'' WHERE seq IN ({seqs})

-- inspect: a queue as Inspect shows it.
SELECT (seq << 12) + turn, COALESCE(id, x''), owner, note, shared, permits, held,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', since), TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at)
FROM {tickets} WHERE name = {name} AND id IS NOT NULL AND expires_at > UTC_TIMESTAMP(6) AND {edition} AND {autocommit} ORDER BY seq

-- list: the names that have a live ticket.
SELECT DISTINCT COALESCE(name, x'') FROM {tickets} WHERE id IS NOT NULL AND expires_at > UTC_TIMESTAMP(6) AND {edition} AND {autocommit}

-- numbered: the ID of a live ticket.
SELECT COALESCE(id, x'') FROM {tickets} WHERE name = {name} AND (seq << 12) + turn = {token} AND expires_at > UTC_TIMESTAMP(6) AND {edition} AND {autocommit}

-- stale: the next tickets, in the order of their entries, that expired a while ago, and the next anchors of queues that
-- are empty: entry and name.
SELECT a.entry, COALESCE(a.name, a.entry) FROM {tickets} AS a
WHERE a.entry > {after} AND {autocommit} AND (a.expires_at < UTC_TIMESTAMP(6) - INTERVAL 5 SECOND AND a.name IS NOT NULL
  OR a.name IS NULL AND NOT EXISTS (SELECT 1 FROM {tickets} AS t WHERE t.name = a.entry))
ORDER BY a.entry LIMIT {most}

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
WHERE seq = {seq} AND (seq << 12) + turn = {token} AND name = {name} AND id IS NOT NULL AND held = 1 AND {autocommit}

-- guard_lock: lock the ticket's entry of the index queue, which renewals do not touch, and
-- not its row: so nothing is read that is not in the index.
SELECT seq FROM {tickets} FORCE INDEX (queue) WHERE name = {name} AND seq = {seq} LOCK IN SHARE MODE

-- tx_find: whether a name has a row to lock.
SELECT 1 FROM {tx} WHERE name = {name} AND {autocommit}

-- tx_make: insert it.
INSERT IGNORE INTO {tx} (name) SELECT {name} FROM DUAL WHERE {autocommit}

-- tx_try: lock it, unless it is missing or another transaction has locked it. There is no error, since MariaDB's for
-- NOWAIT rolls back the whole transaction under innodb_rollback_on_timeout.
SELECT 1 FROM {tx} WHERE name = {name} FOR UPDATE SKIP LOCKED

-- tx_try_or_fail: lock it, unless it is missing. An error says that another transaction has locked it.
SELECT 1 FROM {tx} WHERE name = {name} FOR UPDATE NOWAIT

-- tx_rolls_back: whether a lock wait that timed out has rolled back its whole transaction.
SELECT @@innodb_rollback_on_timeout

-- tx_lock: lock it, and insert it if it is missing. Unlike a query, that leaves no gap locked.
INSERT INTO {tx} (name) VALUES ({name}) ON DUPLICATE KEY UPDATE name = {name}

-- tx_any: whether there are any.
SELECT name FROM {tx} WHERE {autocommit} LIMIT 1

-- tx_idle: lock rows that nobody else locks.
SELECT name FROM {tx} LIMIT {most} FOR UPDATE SKIP LOCKED

-- tx_sweep: delete them.
DELETE FROM {tx} WHERE name IN ({names})

-- schema: the version of the tables.
SELECT table_comment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = {table} AND {autocommit}

-- ping_slots: change nothing, with the rights to read, insert and update.
INSERT INTO {slots} ({column}) SELECT s.{column} FROM {slots} AS s WHERE s.{column} > 65535 AND {autocommit}
ON DUPLICATE KEY UPDATE {slots}.{column} = s.{column}

-- ping_tickets: the same of tickets.
INSERT INTO {tickets} (entry, name, owner, note, shared, permits, held, since, expires_at)
SELECT x'fe', NULL, x'', x'', 0, 0, 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM {slots} AS s
WHERE s.{column} > 65535 AND {autocommit} FOR UPDATE
ON DUPLICATE KEY UPDATE followed = 1

-- ping_tx: the same of the rows of AcquireTx.
INSERT INTO {tx} (name) SELECT x.name FROM {tx} AS x WHERE x.name = x'' AND {autocommit}
ON DUPLICATE KEY UPDATE {tx}.name = x.name

-- ping_delete: change nothing, with the right to delete.
DELETE FROM {tickets} WHERE entry = x'fd' AND {autocommit}

-- ping_delete_tx: the same of the rows of AcquireTx.
DELETE FROM {tx} WHERE name = x'' AND {autocommit}
