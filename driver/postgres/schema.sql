-- The tables of github.com/lockerproject/locker/driver/postgres, schema version {version}. This text,
-- with its functions, may be run again, and by several programs at once. It has no transaction control of
-- its own: run it in one transaction.

DO $locker$ BEGIN
	PERFORM pg_catalog.pg_advisory_xact_lock({schema_key});
	IF to_regnamespace({schema_text}) IS NULL THEN
		CREATE SCHEMA {schema};
	END IF;
END $locker$;

-- A queue is the rows of one name, in the order of slot.
CREATE TABLE IF NOT EXISTS {tickets} (
	name        bytea       NOT NULL, -- bytes: a name may contain what text cannot
	slot        bigint      NOT NULL, -- the token; 0 for an exclusive holder, so that the primary key allows one
	token       bigint      NOT NULL,
	id          text        NOT NULL COLLATE "C",
	process     bigint      NOT NULL, -- which is notified; a waiting ticket lives as long as the row of the process
	queued      boolean     NOT NULL, -- whether it ever waited, or another may wait for it
	held        boolean     NOT NULL,
	provisional boolean     NOT NULL, -- granted while it waited, and not renewed since
	shared      boolean     NOT NULL,
	permits     bigint      NOT NULL, -- how many shared tickets at once; the greatest bigint: any number
	ttl         bigint      NOT NULL, -- in microseconds
	since       timestamptz NOT NULL, -- when it was queued, or granted
	expires_at  timestamptz,          -- of a lease
	owner       bytea       NOT NULL,
	note        bytea       NOT NULL,
	PRIMARY KEY (name, slot),
	CHECK ((slot = 0) = (held AND NOT shared))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
	autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000, vacuum_truncate = off);

-- One row for each process that waits.
CREATE TABLE IF NOT EXISTS {processes} (
	id          bigint      PRIMARY KEY,
	heartbeat   bigint      NOT NULL, -- number of the last one
	alive_until timestamptz NOT NULL  -- set by heartbeats
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE SEQUENCE IF NOT EXISTS {token};

DO $locker$ BEGIN
	-- A plan that was made while a table is small may scan it, and is kept while the table grows.
	-- So the table is never small: it begins with some empty pages, and keeps them.
	IF pg_relation_size({tickets_text}) = 0 THEN
		INSERT INTO {tickets} SELECT '', -n, -n, n::text, 0, true, false, false, false, 1, 0, now(), NULL, repeat('x', 1500)::bytea, ''
			FROM generate_series(1, 128) n;
		DELETE FROM {tickets} WHERE name = '' AND slot < 0;
	END IF;
	-- None of these has an entry for an exclusive ticket that was granted at once. CREATE INDEX IF NOT
	-- EXISTS would lock the table even if the index exists.
	IF to_regclass({tickets_id_text}) IS NULL THEN
		CREATE UNIQUE INDEX {tickets_id} ON {tickets} (id) WHERE slot <> 0;
	END IF;
	IF to_regclass({tickets_process_text}) IS NULL THEN
		CREATE INDEX {tickets_process} ON {tickets} (process, held) WHERE queued;
	END IF;
	IF to_regclass({tickets_permits_text}) IS NULL THEN
		CREATE INDEX {tickets_permits} ON {tickets} (name, permits) WHERE shared;
	END IF;
END $locker$;

-- All queues, in order, for people: SELECT * FROM {queues}.
--
-- Text that a terminal may not print as it is (control characters, characters that change the direction
-- of writing or cannot be seen, invalid UTF-8) is shown as \x and hexadecimal digits, the form in which a
-- bytea is written. So is text that begins with \x itself.
CREATE OR REPLACE VIEW {queues} AS
SELECT
	{name_shown} AS name,
	row_number() OVER (PARTITION BY k.name ORDER BY k.token) AS position,
	CASE WHEN k.held THEN 'holder' ELSE 'waiter' END AS state,
	CASE WHEN NOT k.shared THEN 'exclusive' WHEN k.permits = {any} THEN 'shared' ELSE 'shared, limit ' || k.permits END AS mode,
	{owner_shown} AS owner,
	{note_shown} AS note,
	date_trunc('milliseconds', clock_timestamp() - k.since) AS age,
	CASE WHEN k.held THEN date_trunc('milliseconds', k.expires_at - clock_timestamp()) END AS remaining,
	k.token,
	k.id
FROM {tickets} k WHERE {live} ORDER BY k.name, k.token;

COMMENT ON VIEW {queues} IS 'locker: who holds and who waits; age since the grant or since queueing, remaining of the lease';
