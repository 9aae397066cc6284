-- The queues of locker. A row of {tickets} is a ticket.
--
-- entry     the name, for the anchor of a queue: the row of the ticket that found the
--           name free. A queue that has tickets has an anchor, so a name is free when
--           its anchor can be inserted. All other rows have a byte 255, which no name
--           begins with, and the ID of their ticket.
-- seq       the order of a queue. The fencing token is seq * 2^12 + turn.
-- turn      how many tickets this row had before, one after the other.
-- name, id  of the ticket. The anchor of a ticket that is gone has NULL here; it stays
--           as long as other tickets may be in the queue. An idle anchor has a name and
--           no ID: the queue is empty.
-- followed  on an anchor: others are in the queue or about to be, so it has to stay.
-- guards    how many transactions were tied to the ticket (Guard).
-- holder    the name, on an exclusive holder: a name cannot have two.
CREATE TABLE IF NOT EXISTS {tickets} (
  entry VARBINARY(512) NOT NULL,
  seq BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  turn BIGINT UNSIGNED NOT NULL DEFAULT 0,
  name VARBINARY(512) NULL,
  id VARBINARY(64) NULL,
  owner VARBINARY(2048) NOT NULL,
  note VARBINARY(2048) NOT NULL,
  shared TINYINT NOT NULL,
  permits BIGINT NOT NULL,
  held TINYINT NOT NULL,
  followed TINYINT NOT NULL DEFAULT 0,
  guards BIGINT NOT NULL DEFAULT 0,
  since DATETIME(6) NOT NULL,
  expires_at DATETIME(6) NOT NULL,
  holder VARBINARY(512) GENERATED ALWAYS AS (IF(held = 1 AND shared = 0, name, NULL)) STORED,
  PRIMARY KEY (entry),
  UNIQUE KEY seq (seq),
  UNIQUE KEY holder (holder),
  UNIQUE KEY queue (name, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='locker: tickets, schema {version}';

-- A statement that inserts a ticket locks the slot that the name hashes to until it is
-- committed, so that the tokens of a name become visible in their order. The column's
-- name contains the version of the schema, so statements of another version fail. The
-- first slot has the start of the server that tokens were last raised for, and until when nobody has to sweep.
CREATE TABLE IF NOT EXISTS {slots} (
  {column} SMALLINT UNSIGNED NOT NULL,
  start BIGINT UNSIGNED NOT NULL DEFAULT 0,
  swept_until DATETIME(6) NOT NULL DEFAULT '2000-01-01',
  PRIMARY KEY ({column})
) ENGINE=InnoDB COMMENT='locker: slots, schema {version}';

-- The rows that AcquireTx locks. Those that nobody locks are swept.
CREATE TABLE IF NOT EXISTS {tx} (
  name VARBINARY(512) NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='locker: transactions, schema {version}';

-- All queues, in order, for people: SELECT * FROM {queues}. Text that is not printable
-- (control characters, invisible ones, those that change the direction of writing,
-- invalid UTF-8) is shown as 0x and hexadecimal digits, and so is text that begins with 0x.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {queues} AS
SELECT
  {name_shown} AS name,
  ROW_NUMBER() OVER (PARTITION BY t.name ORDER BY t.seq) AS `position`,
  IF(t.held, 'holder', 'waiter') AS state,
  CASE WHEN NOT t.shared THEN 'exclusive' WHEN t.permits = 0 THEN 'shared' ELSE CONCAT('shared, limit ', t.permits) END AS mode,
  {owner_shown} AS owner,
  {note_shown} AS note,
  {age} AS age,
  IF(t.held, {remaining}, NULL) AS remaining,
  (t.seq << 12) + t.turn AS token,
  CONVERT(t.id USING utf8mb4) AS id
FROM {tickets} AS t
WHERE t.id IS NOT NULL AND t.expires_at > UTC_TIMESTAMP(6)
ORDER BY t.name, t.seq;

INSERT IGNORE INTO {slots} ({column}) VALUES {allslots};
