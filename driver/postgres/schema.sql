-- The tables and functions of github.com/lockerproject/locker/driver/postgres,
-- schema version {version}. This may be run again, and by several at once; it has no
-- transaction control of its own, and belongs into one transaction.
--
-- The names of the functions end with the version and a hash of this text, and programs
-- of another version do not find them: see the end of queues.sql.
--
-- A line is the rows of one name in tickets, in the order of slot. Whoever
-- joins it, or changes more of it than one row, holds the transaction-level
-- advisory lock of its name, so that tickets become visible in the order of
-- their numbers; but for who hands over to the next, see pass.

DO $locker$ BEGIN
	PERFORM pg_catalog.pg_advisory_xact_lock({schema_key});
	IF to_regnamespace({schema_text}) IS NULL THEN
		CREATE SCHEMA {schema};
	END IF;
END $locker$;

CREATE TABLE IF NOT EXISTS {tickets} (
	name       bytea       NOT NULL, -- bytes: a name may hold what text does not
	slot       bigint      NOT NULL, -- the token; 0 for an exclusive holder, so that the primary key allows one
	token      bigint      NOT NULL,
	id         text        NOT NULL COLLATE "C",
	process    bigint      NOT NULL, -- whom to notify; the life of a waiter
	queued     boolean     NOT NULL, -- whether it ever waited, or somebody may wait behind it
	held       boolean     NOT NULL,
	claim      boolean     NOT NULL, -- granted while it waited, not renewed since
	shared     boolean     NOT NULL,
	permits    bigint      NOT NULL, -- how many shared tickets at once; the greatest bigint: any number
	ttl        bigint      NOT NULL, -- in microseconds
	since      timestamptz NOT NULL,
	expires_at timestamptz,          -- of a holder
	owner      bytea       NOT NULL,
	note       bytea       NOT NULL,
	PRIMARY KEY (name, slot),
	CHECK ((slot = 0) = (held AND NOT shared))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
	autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000, vacuum_truncate = off);

-- A plan that was made while a table is small may scan it, and is kept while it grows.
-- This one is never small: it begins with some empty pages, and keeps them.
DO $locker$ BEGIN
	IF pg_relation_size({tickets_text}) = 0 THEN
		INSERT INTO {tickets} SELECT '', -n, -n, n::text, 0, true, false, false, false, 1, 0, now(), NULL, repeat('x', 1500)::bytea, ''
			FROM generate_series(1, 128) n;
		DELETE FROM {tickets} WHERE name = '' AND slot < 0;
	END IF;
END $locker$;

-- None of these has an entry for an exclusive ticket that was granted at once. To ask for an
-- index that is there already would lock the table, so that is found out first.
DO $locker$ BEGIN
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

CREATE TABLE IF NOT EXISTS {processes} (
	id          bigint      PRIMARY KEY,
	beat        bigint      NOT NULL,
	alive_until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE SEQUENCE IF NOT EXISTS {token};

-- The key of a name's lock. Who takes it has to see what others committed before:
-- in stricter isolation it would not, so that is refused.
CREATE OR REPLACE FUNCTION {key}(p_name bytea) RETURNS bigint LANGUAGE plpgsql AS $locker$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'the lines of locker need READ COMMITTED' USING ERRCODE = 'LK001';
	END IF;
	RETURN hashtextextended(encode(p_name, 'hex'), {line_seed});
END $locker$;

-- The next number: that of the sequence, which never goes back but for the loss
-- of committed transactions (a crash with synchronous_commit off, a failover to
-- a replica that lags, a restored backup). So that numbers grow then too, the
-- sequence is kept near the clock, in microseconds.
CREATE OR REPLACE FUNCTION {number}() RETURNS bigint LANGUAGE plpgsql AS $locker$
DECLARE
	n bigint := nextval({token_text});
	near bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 10000;
BEGIN
	-- Whoever does not get the lock finds the sequence moved a moment later: that
	-- does not wait for the transaction that moved it. The lock does, so that no
	-- error and no cancellation leaves it behind.
	FOR i IN 1..3 LOOP
		EXIT WHEN n >= near;
		IF NOT pg_try_advisory_xact_lock({token_key}) THEN
			PERFORM pg_sleep(0.001);
		ELSIF coalesce(pg_sequence_last_value({token_text}), 0) < near THEN
			PERFORM setval({token_text}, near + 10000);
		END IF;
		n := nextval({token_text});
	END LOOP;
	RETURN n;
END $locker$;

-- Walks the line of a name from its head as far as it matters: removes dead
-- tickets, grants those that are to be granted, and notifies their processes.
-- The caller holds the lock of the name. With p_dry it changes nothing and
-- reports due = -infinity when there is something to do.
--
--   ahead    live tickets passed
--   blocked  whether an exclusive one ended the walk
--   due      when the first of those may die
--   mine     grants to p_process, which is not notified
CREATE OR REPLACE FUNCTION {walk}(p_name bytea, p_permits bigint, p_process bigint, p_dry boolean,
	OUT ahead bigint, OUT blocked boolean, OUT due timestamptz, OUT mine text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $locker$
DECLARE
	t       record;
	ends    timestamptz;
	most    bigint;
	other   bigint; -- the one process, beside p_process, that was granted something
	payload text;
BEGIN
	ahead := 0;
	blocked := false;
	due := 'infinity';
	mine := '';
	FOR t IN
		SELECT k.slot, k.token, k.id, k.process, k.held, k.shared, k.permits, k.ttl, k.expires_at, p.beat, p.alive_until
		FROM {tickets} k LEFT JOIN {processes} p ON p.id = k.process AND NOT k.held
		WHERE k.name = p_name ORDER BY k.slot
	LOOP
		ends := CASE WHEN t.held THEN t.expires_at ELSE coalesce(t.alive_until, '-infinity') END;
		IF ends <= clock_timestamp() THEN
			IF p_dry THEN
				due := '-infinity';
				EXIT;
			END IF;
			CONTINUE WHEN {reap}(p_name, t.slot, t.token, t.held, t.process);
			-- Renewed just now, kept by a transaction that it guards, or being reaped by
			-- another walk: look again soon.
			ends := clock_timestamp() + interval '50 ms';
		END IF;
		IF t.shared AND most IS NULL THEN
			SELECT greatest(max(k.permits), p_permits) INTO most FROM {tickets} k WHERE k.name = p_name AND k.shared;
		END IF;
		IF NOT t.held AND t.alive_until > clock_timestamp()
			AND (CASE WHEN t.shared THEN ahead < t.permits ELSE ahead = 0 END)
		THEN
			IF p_dry THEN
				due := '-infinity';
				EXIT;
			END IF;
			ends := least(clock_timestamp() + t.ttl * interval '1 microsecond', t.alive_until);
			UPDATE {tickets} k SET slot = CASE WHEN k.shared THEN k.slot ELSE 0 END,
				held = true, claim = true, since = clock_timestamp(), expires_at = ends
			WHERE k.name = p_name AND k.slot = t.slot;
			IF t.process = p_process THEN
				mine := mine || format(E'\ng %s %s %s', t.id, t.token, t.beat);
			ELSIF other IS NULL THEN
				other := t.process;
				payload := format('g %s %s %s', t.id, t.token, t.beat);
			ELSE -- many at once: each process looks for itself
				payload := 'r';
				PERFORM {notify}(t.process, payload);
			END IF;
		END IF;
		due := least(due, ends);
		ahead := ahead + 1;
		IF NOT t.shared THEN
			blocked := true;
			EXIT;
		END IF;
		EXIT WHEN ahead >= most;
	END LOOP;
	IF other IS NOT NULL THEN
		PERFORM {notify}(other, payload);
	END IF;
END $locker$;

-- Removes an expired ticket; false if it is not expired, or cannot be removed now.
-- A process that let its tickets expire is removed first: that is what tells it,
-- whatever it was about to say. No lock is waited for here: queues are walked in
-- the order of their tickets, so two walks meet the same processes in different orders.
CREATE OR REPLACE FUNCTION {reap}(p_name bytea, p_slot bigint, p_token bigint, p_held boolean, p_process bigint)
RETURNS boolean LANGUAGE plpgsql AS $locker$
BEGIN
	IF p_held THEN
		PERFORM FROM {tickets} WHERE name = p_name AND slot = p_slot AND token = p_token
			AND expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED;
		IF NOT FOUND THEN
			RETURN false;
		END IF;
	ELSE
		DELETE FROM {processes} WHERE id IN (SELECT id FROM {processes}
			WHERE id = p_process AND alive_until <= clock_timestamp() FOR UPDATE SKIP LOCKED);
		IF NOT FOUND AND EXISTS (SELECT FROM {processes} WHERE id = p_process) THEN
			RETURN false;
		END IF;
	END IF;
	DELETE FROM {tickets} WHERE name = p_name AND slot = p_slot AND token = p_token;
	RETURN true;
END $locker$;

-- Sends a notice to the program that a process is an incarnation of.
CREATE OR REPLACE FUNCTION {notify}(p_process bigint, p_payload text) RETURNS void LANGUAGE sql AS $locker$
	SELECT pg_notify({channel_text} || to_hex(p_process >> 16), p_payload)
$locker$;

-- Takes a ticket. The answer's first line is one of
--
--   g TOKEN     granted
--   w TOKEN DUE in line; DUE in microseconds: when to look again
--   n           not granted, and not to wait
--   p           to wait, but the process has to be registered first
--   t NOW       too late: it was to be granted or queued until p_until; both in
--               microseconds of the clock
--
-- and others are grants to p_process, as everywhere: g ID TOKEN BEAT.
CREATE OR REPLACE FUNCTION {acquire}(p_name bytea, p_id text, p_process bigint, p_shared boolean, p_permits bigint,
	p_ttl bigint, p_wait boolean, p_owner bytea, p_note bytea, p_until bigint)
RETURNS text LANGUAGE plpgsql AS $locker$
DECLARE
	old  record;
	head record;
	l    record;
	num  bigint;
	time bigint;
BEGIN
	-- This is {key} and {number}, without the calls.
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM {key}(p_name);
	ELSIF pg_advisory_xact_lock(hashtextextended(encode(p_name, 'hex'), {line_seed})) IS NULL THEN
		RETURN NULL; -- cheaper than PERFORM
	END IF;
	time := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
	IF time > p_until THEN
		RETURN 't ' || time;
	END IF;
	num := nextval({token_text}::regclass);
	IF num < time - 10000 THEN
		num := {number}();
	END IF;
	INSERT INTO {tickets}
		SELECT p_name, CASE WHEN p_shared THEN num ELSE 0 END, num, p_id, p_process, false, true, false,
			p_shared, p_permits, p_ttl, clock_timestamp(), clock_timestamp() + p_ttl * interval '1 microsecond', p_owner, p_note
		WHERE NOT EXISTS (SELECT FROM {tickets} WHERE name = p_name);
	IF FOUND THEN
		RETURN 'g ' || num;
	END IF;

	IF p_wait THEN
		-- A holder that is marked looks, when it leaves, who is next.
		UPDATE {tickets} SET queued = true WHERE name = p_name AND slot = 0 AND NOT queued;
		-- Behind an exclusive holder whose lease goes on there is nothing to walk for.
		-- It may leave just now: if it sees anybody behind it, it hands over, and this
		-- ticket stands behind that one; if not, it waits for the lock of the name.
		SELECT k.id, k.expires_at,
			EXISTS (SELECT FROM {tickets} w WHERE w.id = p_id AND w.slot <> 0) AS again,
			EXISTS (SELECT FROM {processes} p WHERE p.id = p_process AND p.alive_until > clock_timestamp()) AS alive
			INTO head FROM {tickets} k WHERE k.name = p_name AND k.slot = 0;
		IF head.id <> p_id AND head.expires_at > clock_timestamp() AND head.alive AND NOT head.again THEN
			INSERT INTO {tickets} VALUES (p_name, num, num, p_id, p_process, true, false, false, p_shared, p_permits,
				p_ttl, clock_timestamp(), NULL, p_owner, p_note);
			RETURN format('w %s %s', num, {micros}(head.expires_at));
		END IF;
	END IF;
	SELECT k.token, k.held, k.expires_at INTO old FROM (
		SELECT * FROM {tickets} WHERE name = p_name AND slot = 0 AND id = p_id
		UNION ALL
		SELECT * FROM {tickets} WHERE id = p_id AND slot <> 0 AND name = p_name) k;
	IF old.held THEN -- asked before, and answered in vain
		UPDATE {tickets} SET claim = false,
			expires_at = greatest(expires_at, clock_timestamp() + p_ttl * interval '1 microsecond')
		WHERE name = p_name AND slot IN (0, old.token) AND id = p_id AND expires_at > clock_timestamp();
		IF FOUND THEN
			IF old.expires_at <= clock_timestamp() THEN -- it waited for the row
				RAISE EXCEPTION 'the lease ended meanwhile' USING ERRCODE = 'LK002';
			END IF;
			RETURN 'g ' || old.token;
		END IF;
	END IF;
	SELECT * INTO l FROM {walk}(p_name, p_permits, p_process, false);
	IF NOT old.held THEN
		-- It may have been granted by this very walk, or have died.
		SELECT k.token, k.held, k.expires_at INTO old FROM {tickets} k
			WHERE k.name = p_name AND k.slot IN (0, old.token) AND k.id = p_id;
		IF old.held THEN
			UPDATE {tickets} SET claim = false, expires_at = clock_timestamp() + p_ttl * interval '1 microsecond'
			WHERE name = p_name AND slot IN (0, old.token) AND id = p_id;
			RETURN 'g ' || old.token || l.mine;
		ELSIF FOUND THEN
			RETURN format('w %s %s', old.token, {micros}(l.due)) || l.mine;
		END IF;
	END IF;
	IF NOT l.blocked AND l.ahead < (CASE WHEN p_shared THEN p_permits ELSE 1 END) THEN
		INSERT INTO {tickets} VALUES (p_name, CASE WHEN p_shared THEN num ELSE 0 END, num, p_id, p_process, false, true, false,
			p_shared, p_permits, p_ttl, clock_timestamp(), clock_timestamp() + p_ttl * interval '1 microsecond', p_owner, p_note);
		RETURN 'g ' || num || l.mine;
	ELSIF NOT p_wait THEN
		RETURN 'n' || l.mine;
	ELSIF NOT EXISTS (SELECT FROM {processes} WHERE id = p_process AND alive_until > clock_timestamp()) THEN
		RETURN 'p' || l.mine;
	END IF;
	INSERT INTO {tickets} VALUES (p_name, num, num, p_id, p_process, true, false, false, p_shared, p_permits,
		p_ttl, clock_timestamp(), NULL, p_owner, p_note);
	RETURN format('w %s %s', num, {micros}(l.due)) || l.mine;
END $locker$;

-- Microseconds from now, and a bound for what is far.
CREATE OR REPLACE FUNCTION {micros}(p_at timestamptz) RETURNS bigint LANGUAGE sql AS $locker$
	SELECT CASE WHEN p_at > clock_timestamp() + interval '1 hour' THEN 3600000000
		WHEN p_at <= clock_timestamp() THEN 0
		ELSE ceil(extract(epoch FROM p_at - clock_timestamp()) * 1000000)::bigint END
$locker$;

-- Hands an exclusive ticket over to the next, without the lock of the name:
-- NULL, having changed nothing, if that will not do.
--
-- Numbers are given, and tickets inserted, under the lock of the name. So a ticket
-- that cannot be seen yet has a higher number than all that can be, and the
-- first that can be seen is the first. That p_id is the holder, its deletion
-- proves: until this transaction ends nobody else takes slot 0. The next cannot
-- be granted by another meanwhile, for the same reason; it may leave, which
-- its row tells: then all of this is undone, and tried again.
--
-- The row of the holder is locked before that of the next, as in walk, and
-- nothing is waited for afterwards.
CREATE OR REPLACE FUNCTION {pass}(p_name bytea, p_id text, p_process bigint) RETURNS text LANGUAGE plpgsql AS $locker$
DECLARE
	next record;
	live boolean;
BEGIN
	SELECT k.slot, k.token, k.id, k.process, k.shared, p.beat, p.alive_until INTO next
		FROM {tickets} k LEFT JOIN {processes} p ON p.id = k.process
		WHERE k.name = p_name AND k.slot > 0 ORDER BY k.slot LIMIT 1;
	IF next.shared OR next.alive_until <= clock_timestamp() OR next.alive_until IS NULL THEN
		RETURN NULL; -- several may be next, or somebody else
	END IF;
	DELETE FROM {tickets} WHERE name = p_name AND slot = 0 AND id = p_id AND xmax = 0
		RETURNING expires_at > clock_timestamp() INTO live;
	IF live IS NULL THEN
		RETURN NULL; -- not the holder, or perhaps the guard of a transaction: see end
	END IF;
	UPDATE {tickets} SET slot = 0, held = true, claim = true, since = clock_timestamp(),
			expires_at = least(clock_timestamp() + ttl * interval '1 microsecond', next.alive_until)
		WHERE name = p_name AND slot = next.slot;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the next in line has left just now' USING ERRCODE = 'LK002';
	ELSIF next.process = p_process THEN
		RETURN format(E'%s\ng %s %s %s', CASE WHEN live THEN 'r' ELSE 'l' END, next.id, next.token, next.beat);
	END IF;
	PERFORM {notify}(next.process, format('g %s %s %s', next.id, next.token, next.beat));
	RETURN CASE WHEN live THEN 'r' ELSE 'l' END;
END $locker$;

-- Removes a ticket and grants whoever is next. "r", or "l" if it was not
-- there or its lease was over; then grants to p_process. Without p_locks the lock
-- of the name is not to be taken, and "q" says to ask again with it.
CREATE OR REPLACE FUNCTION {release}(p_name bytea, p_id text, p_process bigint, p_locks boolean)
RETURNS text LANGUAGE plpgsql AS $locker$
DECLARE
	live   boolean;
	more   boolean;
	place  bigint;
	passed text;
	l      record;
BEGIN
	passed := {pass}(p_name, p_id, p_process);
	IF passed IS NOT NULL THEN
		RETURN passed;
	ELSIF NOT p_locks THEN
		-- A transaction that it guarded leaves its mark. That it is over, the lock shows.
		PERFORM FROM {tickets} WHERE name = p_name AND slot = 0 AND id = p_id AND NOT queued FOR UPDATE SKIP LOCKED;
		IF NOT FOUND THEN
			RETURN 'q';
		END IF;
		DELETE FROM {tickets} WHERE name = p_name AND slot = 0 AND id = p_id RETURNING expires_at > clock_timestamp() INTO live;
		RETURN CASE WHEN live THEN 'r' ELSE 'l' END;
	END IF;
	IF pg_advisory_xact_lock({key}(p_name)) IS NULL THEN RETURN NULL; END IF; -- cheaper than PERFORM
	FOR i IN 1..2 LOOP -- a ticket that waits may be handed over to in between
		DELETE FROM {tickets} WHERE name = p_name AND slot = 0 AND id = p_id AND xmax = 0
			RETURNING expires_at > clock_timestamp(), EXISTS (SELECT FROM {tickets} WHERE name = p_name AND slot > 0)
			INTO live, more;
		EXIT WHEN live IS NOT NULL;
		DELETE FROM {tickets} WHERE id = p_id AND slot <> 0 AND name = p_name AND (NOT held OR xmax = 0)
			RETURNING NOT held OR expires_at > clock_timestamp(), true INTO live, more;
		EXIT WHEN live IS NOT NULL;
	END LOOP;
	IF live IS NULL THEN
		SELECT k.slot, k.expires_at > clock_timestamp() INTO place, live FROM (
			SELECT * FROM {tickets} WHERE name = p_name AND slot = 0 AND id = p_id
			UNION ALL
			SELECT * FROM {tickets} WHERE id = p_id AND slot <> 0 AND name = p_name) k;
		IF live IS NOT NULL THEN
			more := {end}(p_name, place, p_id);
		END IF;
	END IF;
	IF live IS NULL OR more IS NULL THEN
		RETURN 'l';
	ELSIF more THEN
		SELECT * INTO l FROM {walk}(p_name, 0, p_process, false);
		RETURN CASE WHEN live THEN 'r' ELSE 'l' END || l.mine;
	END IF;
	RETURN CASE WHEN live THEN 'r' ELSE 'l' END;
END $locker$;

-- Removes a held ticket that may guard a transaction, with the lock of the name:
-- NULL if it is not there. While the transaction lasts the row cannot go, and
-- nobody is to wait for that who has others wait. Its lease is ended instead, and
-- it is left to reap; then the answer is false, and who is first in line is told
-- to look.
--
-- A guard, and nothing else that lasts, has the row locked FOR KEY SHARE, which
-- forbids a deletion and no update. So does a row with an xmax of 0, by nobody:
-- which saves the callers of this the question.
CREATE OR REPLACE FUNCTION {end}(p_name bytea, p_slot bigint, p_id text) RETURNS boolean LANGUAGE plpgsql AS $locker$
DECLARE
	first bigint;
BEGIN
	FOR i IN 1..2 LOOP
		PERFORM FROM {tickets} WHERE name = p_name AND slot = p_slot AND id = p_id AND held FOR UPDATE SKIP LOCKED;
		IF FOUND THEN
			DELETE FROM {tickets} WHERE name = p_name AND slot = p_slot AND id = p_id;
			RETURN true;
		END IF;
		-- This waits for a renewal, say, that is under way.
		UPDATE {tickets} SET expires_at = least(expires_at, clock_timestamp())
			WHERE name = p_name AND slot = p_slot AND id = p_id AND held;
		IF NOT FOUND THEN
			RETURN NULL;
		END IF;
	END LOOP;
	SELECT process INTO first FROM {tickets} WHERE name = p_name AND NOT held ORDER BY slot LIMIT 1;
	IF FOUND THEN
		PERFORM {notify}(first, 'd ' || encode(p_name, 'hex'));
	END IF;
	RETURN false;
END $locker$;

-- Removes a ticket by its number, whoever's it is, and tells its process.
CREATE OR REPLACE FUNCTION {break}(p_name bytea, p_token bigint, p_process bigint)
RETURNS text LANGUAGE plpgsql AS $locker$
DECLARE
	gone record;
	more boolean := true;
	l    record;
BEGIN
	IF pg_advisory_xact_lock({key}(p_name)) IS NULL THEN RETURN NULL; END IF; -- cheaper than PERFORM
	DELETE FROM {tickets} k WHERE k.name = p_name AND k.slot IN (0, p_token) AND k.token = p_token AND (NOT k.held OR k.xmax = 0)
		RETURNING k.id, k.process, CASE WHEN k.held THEN k.expires_at > clock_timestamp() ELSE EXISTS (
			SELECT FROM {processes} p WHERE p.id = k.process AND p.alive_until > clock_timestamp()) END AS live INTO gone;
	IF NOT FOUND THEN
		SELECT k.id, k.process, k.slot, k.expires_at > clock_timestamp() AS live INTO gone
			FROM {tickets} k WHERE k.name = p_name AND k.slot IN (0, p_token) AND k.token = p_token;
		IF NOT FOUND THEN
			RETURN 'l';
		END IF;
		more := {end}(p_name, gone.slot, gone.id);
	END IF;
	IF more IS NULL THEN
		RETURN 'l';
	END IF;
	PERFORM {notify}(gone.process, format('l %s %s %s', gone.id, p_token, encode(p_name, 'hex')));
	IF NOT more THEN
		RETURN CASE WHEN gone.live THEN 'r' ELSE 'l' END;
	END IF;
	SELECT * INTO l FROM {walk}(p_name, 0, p_process, false);
	RETURN CASE WHEN gone.live THEN 'r' ELSE 'l' END || l.mine;
END $locker$;

-- Renews leases; answers with the positions of those that were there. An
-- entry that is not held any more is left out.
--
-- An update that waits for a row which is then only unlocked does not look again
-- whether the lease goes on. A lease that ended meanwhile is not to be revived:
-- then all of this is undone, and tried again.
CREATE OR REPLACE FUNCTION {renew}(p_names bytea[], p_slots bigint[], p_tokens bigint[], p_ids text[], p_ttls bigint[])
RETURNS SETOF bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $locker$
DECLARE
	t record;
BEGIN
	FOR t IN
		UPDATE {tickets} k SET claim = false,
			expires_at = greatest(k.expires_at, clock_timestamp() + r.ttl * interval '1 microsecond')
		FROM unnest(p_names, p_slots, p_tokens, p_ids, p_ttls) WITH ORDINALITY AS r(name, slot, token, id, ttl, i)
			JOIN {tickets} was ON was.name = r.name AND was.slot = r.slot
		WHERE k.name = r.name AND k.slot = r.slot AND k.token = r.token AND k.id = r.id
			AND k.held AND k.expires_at > clock_timestamp()
		RETURNING r.i, was.expires_at <= clock_timestamp() AS late
	LOOP
		IF t.late THEN
			RAISE EXCEPTION 'a lease ended meanwhile' USING ERRCODE = 'LK002';
		END IF;
		RETURN NEXT t.i;
	END LOOP;
END $locker$;

-- Says that a process lives, with p_new that it is there. The answer is the
-- number of the beat, or 0 for a process that has died.
CREATE OR REPLACE FUNCTION {beat}(p_process bigint, p_life bigint, p_new boolean) RETURNS bigint LANGUAGE plpgsql AS $locker$
DECLARE
	n bigint;
BEGIN
	UPDATE {processes} SET beat = beat + 1, alive_until = clock_timestamp() + p_life * interval '1 microsecond'
		WHERE id = p_process AND alive_until > clock_timestamp() RETURNING beat INTO n;
	IF NOT FOUND AND p_new THEN
		INSERT INTO {processes} VALUES (p_process, 1, clock_timestamp() + p_life * interval '1 microsecond')
			ON CONFLICT DO NOTHING RETURNING beat INTO n;
	END IF;
	RETURN coalesce(n, 0);
END $locker$;

-- Looks, without changing anything, when the heads of lines may die: for each
-- name the microseconds until then, -1 if there is something to do, and whether
-- the first who waits is p_process.
CREATE OR REPLACE FUNCTION {look}(p_names bytea[], p_process bigint)
RETURNS TABLE (i bigint, due bigint, first boolean) LANGUAGE sql SET enable_seqscan = off AS $locker$
	SELECT n.i, CASE WHEN w.due = '-infinity' THEN -1 ELSE {micros}(w.due) END,
		p_process IS NOT DISTINCT FROM (
			SELECT k.process FROM {tickets} k WHERE k.name = n.name AND NOT k.held ORDER BY k.slot LIMIT 1)
	FROM unnest(p_names) WITH ORDINALITY AS n(name, i), {walk}(n.name, 0, p_process, true) w
$locker$;

-- Does what look found to do. The answer is "r" and grants to p_process.
CREATE OR REPLACE FUNCTION {poke}(p_name bytea, p_process bigint) RETURNS text LANGUAGE plpgsql AS $locker$
DECLARE
	l record;
BEGIN
	IF pg_advisory_xact_lock({key}(p_name)) IS NULL THEN RETURN NULL; END IF; -- cheaper than PERFORM
	SELECT * INTO l FROM {walk}(p_name, 0, p_process, false);
	RETURN 'r' || l.mine;
END $locker$;

-- Removes expired tickets, wherever in a queue they are: on names that nobody uses,
-- and of waiters behind a live holder. It looks at p_most queues at most, in the
-- order of their names, after p_after; p_last is the last of them, NULL if there are
-- no more. It waits for no lock, and p_busy counts the queues in which something is
-- in use, so that expired tickets are left.
CREATE OR REPLACE FUNCTION {sweep}(p_after bytea, p_most bigint, OUT p_last bytea, OUT p_busy bigint) LANGUAGE plpgsql AS $locker$
DECLARE
	n    bytea;
	seen bigint := 0;
BEGIN
	p_busy := 0;
	-- The process first, as in reap: this is what ends its tickets. Those who wait
	-- behind them had the second to do it themselves.
	DELETE FROM {processes} WHERE id IN (SELECT id FROM {processes}
		WHERE alive_until < clock_timestamp() - interval '1 second' FOR UPDATE SKIP LOCKED);
	FOR n IN
		SELECT DISTINCT k.name FROM {tickets} k LEFT JOIN {processes} p ON p.id = k.process AND NOT k.held
		WHERE k.name > p_after
			AND CASE WHEN k.held THEN k.expires_at < clock_timestamp() - interval '1 second' ELSE p.id IS NULL END
		ORDER BY k.name LIMIT p_most
	LOOP
		seen := seen + 1;
		p_last := n;
		IF pg_try_advisory_xact_lock({key}(n)) THEN
			DELETE FROM {tickets} WHERE name = n AND slot IN (SELECT k.slot FROM {tickets} k
				WHERE k.name = n AND NOT k.held AND NOT EXISTS (SELECT FROM {processes} p WHERE p.id = k.process)
				FOR UPDATE SKIP LOCKED);
			PERFORM {walk}(n, 0, 0, false);
			-- What is left may be kept by a transaction that it guards.
			CONTINUE WHEN NOT EXISTS (SELECT FROM {tickets} k LEFT JOIN {processes} p ON p.id = k.process AND NOT k.held
				WHERE k.name = n
					AND CASE WHEN k.held THEN k.expires_at < clock_timestamp() - interval '1 second' ELSE p.id IS NULL END);
		END IF;
		p_busy := p_busy + 1;
	END LOOP;
	IF seen < p_most THEN
		p_last := NULL;
	END IF;
END $locker$;

-- Guards the transaction that calls it: true if the ticket is held, and then
-- nobody else is granted the name until that transaction has ended.
CREATE OR REPLACE FUNCTION {guard}(p_name bytea, p_token bigint) RETURNS boolean LANGUAGE plpgsql AS $locker$
BEGIN
	PERFORM FROM {tickets} WHERE name = p_name AND slot IN (0, p_token) AND token = p_token
		AND held AND expires_at > clock_timestamp() FOR KEY SHARE;
	IF NOT FOUND AND current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'the lock is not in the snapshot of this transaction' USING ERRCODE = '40001',
			HINT = 'Acquire the lock before the transaction begins, or use READ COMMITTED.';
	END IF;
	RETURN FOUND;
END $locker$;
