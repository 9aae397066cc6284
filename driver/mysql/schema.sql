-- The queues of locker. A row of {tickets} is a ticket.
--
-- entry     the name, for the anchor of a queue; otherwise a byte 255, which no name begins with, and the ID of the ticket.
--           A queue that has tickets has an anchor, so a name is free when its anchor can be inserted. The anchor is the
--           ticket that found the name free, or the exclusive holder. If there is no such ticket, it has no name and no ID.
-- seq       the fencing token, in the order of a queue.
-- process   which is notified; a ticket that waits lives as long as the row of the process.
-- heartbeat the number of the last heartbeat of the process before the grant.
-- queued    on an anchor: others are in the queue or about to be, so it has to stay.
-- provisional  granted while it waited, and not renewed since.
-- permits   how many shared tickets at once; 0: any number.
-- ttl       in microseconds.
-- guards    how many transactions were tied to the ticket (Guard).
-- since     when it was queued, or granted.
-- expires_at  of a lease.
CREATE TABLE IF NOT EXISTS {tickets} (
  entry VARBINARY(512) NOT NULL,
  seq BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  name VARBINARY(512) NULL,
  id VARBINARY(64) NULL,
  process BIGINT NOT NULL,
  heartbeat BIGINT NOT NULL DEFAULT 0,
  queued TINYINT NOT NULL,
  held TINYINT NOT NULL,
  provisional TINYINT NOT NULL DEFAULT 0,
  shared TINYINT NOT NULL,
  permits BIGINT NOT NULL,
  ttl BIGINT NOT NULL,
  guards BIGINT NOT NULL DEFAULT 0,
  since DATETIME(6) NOT NULL,
  expires_at DATETIME(6) NULL,
  owner VARBINARY(2048) NOT NULL,
  note VARBINARY(2048) NOT NULL,
  PRIMARY KEY (entry),
  UNIQUE KEY seq (seq),
  UNIQUE KEY queue (name, seq),
  KEY process (provisional, process),
  CHECK (name IS NULL OR held = 0 OR shared = 1 OR entry = name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='locker: tickets, schema {version}';

-- One row for each process that waits. A connection of the process sleeps on a server, and is woken by KILL QUERY; 0: none
-- does, -1: somebody may not.
CREATE TABLE IF NOT EXISTS {processes} (
  id BIGINT NOT NULL,
  heartbeat BIGINT NOT NULL,
  alive_until DATETIME(6) NOT NULL,
  server BIGINT UNSIGNED NOT NULL,
  connection BIGINT NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB COMMENT='locker: processes, schema {version}';

-- A transaction that inserts a ticket or grants one locks the slot that the name hashes to, so that the tokens of a name
-- become visible in their order. The column's name contains the version of the schema, so statements of another version
-- fail. The first slot has the start of the server that tokens were last raised for, and until when nobody has to sweep.
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
  t.seq AS token,
  CONVERT(t.id USING utf8mb4) AS id
FROM {tickets} AS t LEFT JOIN {processes} AS p ON p.id = t.process
WHERE t.name IS NOT NULL AND IF(t.held, t.expires_at, p.alive_until) > UTC_TIMESTAMP(6)
ORDER BY t.name, t.seq;

INSERT IGNORE INTO {slots} ({column}) VALUES {allslots};
