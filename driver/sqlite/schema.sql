-- The schema of github.com/lockerproject/locker/driver/sqlite, version 1.
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
  id      TEXT PRIMARY KEY,
  expires INTEGER NOT NULL -- set by heartbeats
) STRICT, WITHOUT ROWID;

CREATE INDEX processes_expiry ON processes (expires);

-- One row for each ticket. AUTOINCREMENT never gives a number twice, also after rows were removed.
CREATE TABLE tickets (
  token   INTEGER PRIMARY KEY AUTOINCREMENT,
  name    BLOB NOT NULL,        -- bytes: a name may contain NUL
  id      TEXT NOT NULL UNIQUE,
  process TEXT NOT NULL,        -- which is notified
  owner   BLOB NOT NULL,
  note    BLOB NOT NULL,
  shared  INTEGER NOT NULL,
  permits INTEGER NOT NULL,     -- how many shared tickets at once; the greatest integer: any number
  ttl     INTEGER NOT NULL,
  state   TEXT NOT NULL CHECK (state IN ('waiting', 'grantable', 'held')),
  since   INTEGER NOT NULL,     -- when it was queued, or granted
  expires INTEGER,              -- of a lease
  CHECK ((state = 'held') = (expires IS NOT NULL))
) STRICT;

-- Two exclusive holders of one name are impossible.
CREATE UNIQUE INDEX tickets_holder ON tickets (name) WHERE state = 'held' AND NOT shared;

CREATE INDEX tickets_queue ON tickets (name);
CREATE INDEX tickets_permits ON tickets (name, permits) WHERE shared;
CREATE INDEX tickets_expiry ON tickets (expires) WHERE expires IS NOT NULL;
CREATE INDEX tickets_waiting ON tickets (process, state) WHERE state <> 'held';

-- Tickets that were broken, until their process has read that.
CREATE TABLE losses (
  token   INTEGER PRIMARY KEY,
  process TEXT NOT NULL,
  name    BLOB NOT NULL,
  id      TEXT NOT NULL,
  shared  INTEGER NOT NULL,
  expires INTEGER NOT NULL
) STRICT;

CREATE INDEX losses_process ON losses (process);
CREATE INDEX losses_expiry ON losses (expires);
