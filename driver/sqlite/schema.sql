-- The schema of github.com/lockerproject/locker/driver/sqlite, version 2.
-- Times are nanoseconds of the machine's clock, since it was booted.

PRAGMA application_id = 0x6c6f636b; -- "lock"

-- One row: the version and the boot that the other tables are for.
CREATE TABLE store (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  version INTEGER NOT NULL, -- of this schema
  boot    TEXT NOT NULL     -- ID of the boot: after another boot all tickets are over
) STRICT;

-- One row for each process that waits. Its waiting tickets live as long as the row.
CREATE TABLE processes (
  id        INTEGER PRIMARY KEY,
  heartbeat INTEGER NOT NULL, -- number of the last one
  expires   INTEGER NOT NULL  -- set by heartbeats
) STRICT;

CREATE INDEX processes_expiry ON processes (expires);

-- One row for each ticket. AUTOINCREMENT never gives a number twice, also after rows were removed.
CREATE TABLE tickets (
  token   INTEGER PRIMARY KEY AUTOINCREMENT,
  name    BLOB NOT NULL,        -- bytes: a name may contain NUL
  slot    INTEGER,              -- 0 for an exclusive holder, so that there is only one
  id      TEXT NOT NULL,
  process INTEGER NOT NULL,     -- which is notified
  owner   BLOB NOT NULL,
  note    BLOB NOT NULL,
  shared  INTEGER NOT NULL,
  permits INTEGER NOT NULL,     -- how many shared tickets at once; the greatest integer: any number
  ttl     INTEGER NOT NULL,
  state   TEXT NOT NULL,        -- waiting, provisional (held, and not renewed since it waited) or held
  since   INTEGER NOT NULL,     -- when it was queued, or granted
  expires INTEGER,              -- of a lease
  CHECK (state = 'waiting' OR state = 'provisional' OR state = 'held'), -- IN makes a temporary table for each row
  CHECK ((state = 'waiting') = (expires IS NULL)),
  CHECK ((slot IS NOT NULL) = (state <> 'waiting' AND NOT shared)),
  CHECK (slot = 0)
) STRICT;

-- Two exclusive holders of one name are impossible. An exclusive ticket that is granted at once has no entry in the
-- indexes below, but for that of leases.
CREATE UNIQUE INDEX tickets_queue ON tickets (name, slot);

CREATE UNIQUE INDEX tickets_id ON tickets (id) WHERE slot IS NULL;
CREATE INDEX tickets_permits ON tickets (name, permits) WHERE shared;
CREATE INDEX tickets_expiry ON tickets (expires) WHERE expires IS NOT NULL;
CREATE INDEX tickets_process ON tickets (process, state) WHERE state <> 'held';
