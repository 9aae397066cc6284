-- Statements by name. Values are put in as numbers and as hexadecimal literals,
-- which no character set or SQL mode reads in another way, so that each is one
-- round trip whatever the DSN. Each locks few rows, by a unique key. Deadlocks are
-- possible all the same: a new entry of the index sole, for one, locks the gap at the
-- mark of a deleted one for a moment. A statement that one ends has done nothing, and is sent again.
-- {ours} is true, and fails with error 1054 where the tables are of another version: it stands in what a program may begin with
-- that does not use {slots} anyway.
-- {alone} fails with error 1690 where autocommit is off: servers find that out before they
-- look for rows, so that such a session neither changes, locks nor reads anything.

-- clock: the time that deadlines are told in, and which server this is, since which start.
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), {server} FROM DUAL WHERE {alone}

-- epoch: the start of a server that numbers were last moved to the clock for, and the last
-- number of a row before that.
SELECT server, floor FROM {epochs} WHERE one = 1 AND {ours} AND {alone}

-- epochlock: the same, so that nobody else begins an epoch.
SELECT server, floor FROM {epochs} WHERE one = 1 FOR UPDATE

-- epochclock: move AUTO_INCREMENT to the clock in milliseconds, if it is not beyond that (then the
-- number may be a row's: error 1062).
INSERT INTO {tickets} (place, seq, turn, owner, note, shared, permits, held, since, expires)
VALUES (x'fe', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000, 1, x'', x'', 0, 0, 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))

-- epochfloor: take a number.
INSERT INTO {tickets} (place, turn, owner, note, shared, permits, held, since, expires)
VALUES (x'fe', 1, x'', x'', 0, 0, 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))

-- epochclear: remove the row of such a number.
DELETE FROM {tickets} WHERE place = x'fe'

-- epochkept: remove the rows that were kept before.
DELETE FROM {tickets} WHERE turn % 2 = 1 AND seq <= {floor}

-- epochbegin: begin the epoch of this start of this server.
UPDATE {epochs} SET server = {server}, floor = {floor} WHERE one = 1

-- again: take, as its next turn, the row of a gate that this process kept, and be granted.
-- Nothing but the ticket's own has changed in it since. What comes after its
-- deadline, when its sender has given up, does nothing.
UPDATE {tickets} SET turn = {next}, id = {id},
  since = UTC_TIMESTAMP(6), expires = UTC_TIMESTAMP(6) + INTERVAL {ttl} MICROSECOND
WHERE place = {name} AND (seq << 20) + turn = {token} AND UTC_TIMESTAMP(6) < {deadline} AND {here} AND {alone}

-- burn: see to it that a request to take that turn does nothing any more.
UPDATE {tickets} SET turn = turn + 2 WHERE place = {name} AND (seq << 20) + turn = {token} AND {alone}

-- enter: take the gate of a line that nobody stands in, be it new or kept, and be
-- granted; or knock. The number that the server tells is the seq of a new row, the whole
-- of a kept one, and 0 when the line has tickets.
INSERT INTO {tickets} (place, name, id, owner, note, shared, permits, held, since, expires)
VALUES ({name}, {name}, {id}, {owner}, {note}, {shared}, {permits},
  (SELECT 1 FROM {slots} WHERE {column} = {slot} AND UTC_TIMESTAMP(6) < {deadline} AND {here} AND {alone} FOR UPDATE),
  UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL {ttl} MICROSECOND)
ON DUPLICATE KEY UPDATE
  {tickets}.id = IF({tickets}.turn % 2, {id}, {tickets}.id),
  {tickets}.owner = IF({tickets}.turn % 2, {owner}, {tickets}.owner),
  {tickets}.note = IF({tickets}.turn % 2, {note}, {tickets}.note),
  {tickets}.permits = IF({tickets}.turn % 2, {permits}, {tickets}.permits),
  {tickets}.shared = IF({tickets}.turn % 2, {shared}, {tickets}.shared),
  {tickets}.since = IF({tickets}.turn % 2, UTC_TIMESTAMP(6), {tickets}.since),
  {tickets}.expires = IF({tickets}.turn % 2, UTC_TIMESTAMP(6) + INTERVAL {ttl} MICROSECOND, {tickets}.expires),
  {tickets}.knocks = {tickets}.knocks + IF({tickets}.turn % 2, 0, {knock}),
  {tickets}.turn = IF({tickets}.turn % 2, LAST_INSERT_ID(({tickets}.seq << 20) + {tickets}.turn + 1) & 1048575, {tickets}.turn + LAST_INSERT_ID(0))

-- queue: enqueue behind the row of somebody else that begins the queue and says that others may
-- follow. Error 1048: there is none, or it is too late. The rows are locked in the same order as by enter: that of the
-- slot, then the first of the queue. It is not INSERT ... SELECT, which under
-- innodb_autoinc_lock_mode=1, MariaDB's default, locks AUTO_INCREMENT of the table until it is committed.
INSERT INTO {tickets} (place, name, id, owner, note, shared, permits, held, since, expires)
VALUES ({seat}, {name}, {id}, {owner}, {note}, {shared}, {permits},
  (SELECT 0 FROM (SELECT s.{column} FROM {slots} AS s STRAIGHT_JOIN {tickets} AS g ON g.place = {name}
    WHERE s.{column} = {slot} AND UTC_TIMESTAMP(6) < {deadline} AND {here} AND {alone}
      AND g.knocks > 0 AND (g.id IS NULL OR g.id <> {id}) LIMIT 1 FOR UPDATE) AS x),
  UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL {life} MICROSECOND)

-- admit: the same for a ticket that is to be granted now or not queued at all. While the two rows are
-- locked nobody enqueues. An exclusive ticket counts for all that there is room for. Error 1048: also, that there
-- is no room.
INSERT INTO {tickets} (place, name, id, owner, note, shared, permits, held, since, expires)
VALUES ({seat}, {name}, {id}, {owner}, {note}, {shared}, {permits},
  (SELECT 1 FROM (SELECT s.{column} FROM {slots} AS s STRAIGHT_JOIN {tickets} AS g ON g.place = {name}
    WHERE s.{column} = {slot} AND UTC_TIMESTAMP(6) < {deadline} AND {here} AND {alone}
      AND g.knocks > 0 AND (g.id IS NULL OR g.id <> {id})
      AND (SELECT COALESCE(SUM(IF(t.shared, 1, {room})), 0) FROM {tickets} AS t
        WHERE t.name = IF(s.{column} = {slot}, {name}, NULL) AND t.turn % 2 = 0) < {room}
    LIMIT 1 FOR UPDATE) AS x),
  UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL {ttl} MICROSECOND)

-- head: the first tickets of a line. Under READ UNCOMMITTED this and what follows may read a row whose ticket was
-- released since it was found: id and name are NULL there.
SELECT {key}, (seq << 20) + turn, COALESCE(id, x''), shared, permits, held, expires <= UTC_TIMESTAMP(6),
  TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires)
FROM {tickets} WHERE name = {name} AND turn % 2 = 0 AND {alone} ORDER BY seq LIMIT {most}

-- find: the number of a ticket.
SELECT (seq << 20) + turn FROM {tickets} WHERE place IN ({seat}, {name}) AND id = {id} AND name = {name} AND turn % 2 = 0 AND {alone}

-- claim: hold tickets that were seen to be next. What is ahead of a ticket only ever
-- goes away, so what was seen once is true for ever.
UPDATE {tickets} SET held = 1, since = UTC_TIMESTAMP(6), expires = UTC_TIMESTAMP(6) + INTERVAL {ttl} MICROSECOND
WHERE seq IN ({seqs}) AND held = 0 AND expires > UTC_TIMESTAMP(6) AND {alone}

-- holding: which of these tickets are held, and not over.
SELECT (seq << 20) + turn FROM {tickets} WHERE seq IN ({seqs}) AND held = 1 AND expires > UTC_TIMESTAMP(6) AND {alone}

-- beat: show that the process of these waiters lives.
UPDATE {tickets} SET expires = UTC_TIMESTAMP(6) + INTERVAL {life} MICROSECOND
WHERE seq IN ({seqs}) AND held = 0 AND expires > UTC_TIMESTAMP(6) AND {alone}

-- standing: which of these tickets are in line.
SELECT (seq << 20) + turn FROM {tickets} WHERE seq IN ({seqs}) AND expires > UTC_TIMESTAMP(6) AND {alone}

-- renew: lengthen leases that are not over; never shorten one.
UPDATE {tickets} SET expires = GREATEST(expires, UTC_TIMESTAMP(6) + INTERVAL {ttl} MICROSECOND)
WHERE seq IN ({seqs}) AND id IN ({ids}) AND name IN ({names}) AND held = 1 AND turn % 2 = 0 AND expires > UTC_TIMESTAMP(6)
  AND {alone}

-- renewed: which of these leases are not over.
SELECT (seq << 20) + turn FROM {tickets}
WHERE seq IN ({seqs}) AND id IN ({ids}) AND name IN ({names}) AND held = 1 AND turn % 2 = 0 AND expires > UTC_TIMESTAMP(6)
  AND {alone}

-- keep: release a ticket at a gate where nobody has knocked, and keep the row for the next.
UPDATE {tickets} SET turn = {next} WHERE place = {name} AND (seq << 20) + turn = {token} AND knocks = 0 AND {here} AND {alone}

-- leave: release a ticket at a gate where nobody has knocked, and the gate with it.
DELETE FROM {tickets} WHERE place = {name} AND (seq << 20) + turn = {token} AND id = {id} AND knocks = 0 AND {alone}

-- vacate: release a ticket at the gate that no transaction was tied to, and leave the gate for the others.
UPDATE {tickets} SET name = NULL, id = NULL, held = 0, owner = x'', note = x'',
  expires = UTC_TIMESTAMP(6) + INTERVAL {idle} MICROSECOND
WHERE place = {name} AND (seq << 20) + turn = {token} AND id = {id} AND held = 1
  AND knocks < {guarded} AND {alone}

-- unqueue: release a ticket behind the gate that no transaction was tied to.
DELETE FROM {tickets} WHERE place = {seat} AND seq = {seq} AND name = {name} AND knocks = 0 AND {alone}

-- end: end the lease of a ticket that a transaction was tied to, and may be. To take its
-- place from it would wait for that; the line moves on when it is buried.
UPDATE {tickets} SET expires = UTC_TIMESTAMP(6)
WHERE seq = {seq} AND (seq << 20) + turn = {token} AND name = {name} AND id = {id} AND held = 1 AND knocks >= {guarded} AND {alone}

-- close: take away a gate that nobody stands at and nobody behind. It locks the gate first.
DELETE g FROM {tickets} AS g LEFT JOIN {tickets} AS t ON t.name = {name}
WHERE g.place = {name} AND g.name IS NULL AND t.seq IS NULL AND {alone}

-- dead: tickets of a line that are over.
SELECT (seq << 20) + turn FROM {tickets} WHERE name = {name} AND turn % 2 = 0 AND expires <= UTC_TIMESTAMP(6) AND {alone} ORDER BY seq LIMIT 1000

-- bury: lock the ones of them that no transaction guards.
SELECT (seq << 20) + turn FROM {tickets} FORCE INDEX (line)
WHERE name = {name} AND seq IN ({seqs}) AND turn % 2 = 0 AND expires <= UTC_TIMESTAMP(6) FOR UPDATE SKIP LOCKED

-- buried: remove them, but leave a gate where somebody has knocked.
DELETE FROM {tickets} WHERE seq IN ({seqs}) AND (place <> name OR knocks = 0) AND {alone}

-- vacated: turn the rest, which stand at a gate, into mere gates.
UPDATE {tickets} SET name = NULL, id = NULL, held = 0, owner = x'', note = x'',
  expires = UTC_TIMESTAMP(6) + INTERVAL {idle} MICROSECOND
WHERE seq IN ({seqs})

-- inspect: the line as people see it.
SELECT (seq << 20) + turn, COALESCE(id, x''), owner, note, shared, permits, held,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', since), TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires)
FROM {tickets} WHERE name = {name} AND turn % 2 = 0 AND expires > UTC_TIMESTAMP(6) AND {ours} AND {alone} ORDER BY seq

-- list: the names of all lines.
SELECT DISTINCT COALESCE(name, x'') FROM {tickets} WHERE name IS NOT NULL AND turn % 2 = 0 AND expires > UTC_TIMESTAMP(6) AND {ours} AND {alone}

-- numbered: the ID of a live ticket.
SELECT COALESCE(id, x'') FROM {tickets} WHERE name = {name} AND (seq << 20) + turn = {token} AND expires > UTC_TIMESTAMP(6) AND {ours} AND {alone}

-- stale: names whose dead nobody has buried, and gates that nobody stands at.
SELECT DISTINCT COALESCE(name, place) FROM {tickets}
WHERE turn % 2 = 0 AND (name IS NULL OR expires < UTC_TIMESTAMP(6) - INTERVAL 5 SECOND) AND {alone} LIMIT {most}

-- kept: the gates that somebody kept who has not come for them.
SELECT place FROM {tickets} WHERE turn % 2 = 1 AND since < UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE AND {alone} LIMIT {most}

-- forget: remove kept gates that nobody has used of late.
DELETE FROM {tickets} WHERE place IN ({names}) AND turn % 2 = 1 AND since <= UTC_TIMESTAMP(6) - INTERVAL {unused} MICROSECOND AND {alone}

-- knock: see to it that a ticket's row is not kept when it is released, and that its release
-- does not wait for its place in line. It does not touch that place.
UPDATE {tickets} FORCE INDEX (seq) SET knocks = knocks + {guarded}
WHERE seq = {seq} AND (seq << 20) + turn = {token} AND name = {name} AND held = 1 AND {alone}

-- guard: lock the place in line, which renewals do not touch.
SELECT seq FROM {tickets} FORCE INDEX (line) WHERE name = {name} AND seq = {seq} LOCK IN SHARE MODE

-- txseen: whether there is a row to lock for a name.
SELECT 1 FROM {tx} WHERE name = {name} AND {alone}

-- txmake: make it.
INSERT IGNORE INTO {tx} (name) SELECT {name} FROM DUAL WHERE {alone}

-- txtry: lock it now.
SELECT 1 FROM {tx} WHERE name = {name} FOR UPDATE NOWAIT

-- txenter: lock it, and make it if it is not there. Unlike a query, that leaves no gap locked.
INSERT INTO {tx} (name) VALUES ({name}) ON DUPLICATE KEY UPDATE name = {name}

-- txany: whether there are any.
SELECT name FROM {tx} WHERE {alone} LIMIT 1

-- txidle: rows that nobody holds.
SELECT name FROM {tx} LIMIT {most} FOR UPDATE SKIP LOCKED

-- txsweep: remove them.
DELETE FROM {tx} WHERE name IN ({names})

-- version: what made the tables.
SELECT table_comment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = {table} AND {alone}

-- pingslots: change nothing, with the rights to read, insert and update.
INSERT INTO {slots} ({column}) SELECT s.{column} FROM {slots} AS s WHERE s.{column} > 65535 AND {alone}
ON DUPLICATE KEY UPDATE {slots}.{column} = s.{column}

-- pingwrite: the same of tickets.
INSERT INTO {tickets} (place, name, owner, note, shared, permits, held, since, expires)
SELECT x'fe', NULL, x'', x'', 0, 0, 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM {slots} AS s
WHERE s.{column} > 65535 AND {alone} FOR UPDATE
ON DUPLICATE KEY UPDATE turn = 1

-- pingtx: the same of the rows of AcquireTx.
INSERT INTO {tx} (name) SELECT x.name FROM {tx} AS x WHERE x.name = x'' AND {alone}
ON DUPLICATE KEY UPDATE {tx}.name = x.name

-- pingdelete: change nothing, with the right to delete.
DELETE FROM {tickets} WHERE place = x'fd' AND {alone}

-- pingdeletetx: the same of the rows of AcquireTx.
DELETE FROM {tx} WHERE name = x'' AND {alone}

-- pingepochs: change nothing, with the rights to read and update.
UPDATE {epochs} SET floor = floor WHERE one = 0 AND {alone}
