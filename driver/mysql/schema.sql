-- The lines of locker. One row of {tickets} is one ticket.
--
-- place  the name, for the one row of a line that stands at its gate: the first
--        that came, or the mere gate that it left (then name is NULL). While a line
--        has tickets it has a gate, so a free name is one that can be inserted, or
--        one whose gate is kept.
--        Those behind have a byte 255, which no name begins with, and their ID.
-- seq    the place in line. With turn it is the ticket's number, the fencing token:
--        seq * 2^20 + turn.
-- turn   counts up when the row of a gate is kept after its ticket was released, and
--        when the next ticket takes it. So odd ones are of rows that nobody has: the line is empty.
-- knocks others may be behind the gate, or on their way. Then it is not kept. From 2^32 on, a
--        transaction was tied to the ticket (Guard).
-- sole   the name, on an exclusive holder: two of one name cannot be.
-- line   the line of a name in order.
CREATE TABLE IF NOT EXISTS {tickets} (
  place VARBINARY(512) NOT NULL,
  seq BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  turn BIGINT UNSIGNED NOT NULL DEFAULT 0,
  name VARBINARY(512) NULL,
  id VARBINARY(64) NULL,
  owner VARBINARY(2048) NOT NULL,
  note VARBINARY(2048) NOT NULL,
  shared TINYINT NOT NULL,
  permits BIGINT NOT NULL,
  held TINYINT NOT NULL,
  knocks BIGINT NOT NULL DEFAULT 0,
  since DATETIME(6) NOT NULL,
  expires DATETIME(6) NOT NULL,
  sole VARBINARY(512) GENERATED ALWAYS AS (IF(held = 1 AND shared = 0, name, NULL)) STORED,
  PRIMARY KEY (place),
  UNIQUE KEY seq (seq),
  UNIQUE KEY sole (sole),
  UNIQUE KEY line (name, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='locker: tickets, schema {version}';

-- Whoever takes a ticket with a seq of its own locks the slot that its name hashes to
-- until the ticket can be seen by all: so numbers become visible in their order. The
-- name of the column says the version of the schema, so that programs of another fail.
CREATE TABLE IF NOT EXISTS {slots} (
  {column} SMALLINT UNSIGNED NOT NULL,
  PRIMARY KEY ({column})
) ENGINE=InnoDB COMMENT='locker: slots, schema {version}';

-- Rows that AcquireTx locks; unlocked ones are swept away.
CREATE TABLE IF NOT EXISTS {tx} (
  name VARBINARY(512) NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='locker: transactions, schema {version}';

-- One row: the start of the server that numbers were last moved to the clock for (see statements.sql, epoch), and
-- the last number of a row before that.
CREATE TABLE IF NOT EXISTS {epochs} (
  one TINYINT NOT NULL,
  server BIGINT UNSIGNED NOT NULL,
  floor BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (one)
) ENGINE=InnoDB COMMENT='locker: epochs, schema {version}';

-- All queues, in order, for people: SELECT * FROM {queues}. Text that a terminal may not print as
-- it is (control characters, what changes the direction of writing, what cannot be seen, what is no UTF-8) is shown
-- as 0x and hexadecimal digits, and so is what begins with 0x itself.
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
  (t.seq << 20) + t.turn AS token,
  CONVERT(t.id USING utf8mb4) AS id
FROM {tickets} AS t
WHERE t.name IS NOT NULL AND t.turn % 2 = 0 AND t.expires > UTC_TIMESTAMP(6)
ORDER BY t.name, t.seq;

INSERT IGNORE INTO {epochs} (one, server, floor) VALUES (1, 0, 0);

INSERT IGNORE INTO {slots} ({column}) VALUES {allslots};
