-- The functions that renew leases and maintain queues, and those that show queues to programs.

-- Microseconds from now to p_at, at least 0 and at most an hour.
CREATE OR REPLACE FUNCTION {micros}(p_at timestamptz) RETURNS bigint LANGUAGE sql AS $locker$
	SELECT CASE WHEN p_at > clock_timestamp() + interval '1 hour' THEN 3600000000
		WHEN p_at <= clock_timestamp() THEN 0
		ELSE ceil(extract(epoch FROM p_at - clock_timestamp()) * 1000000)::bigint END
$locker$;

-- Renews leases. The answer is the positions of the renewed ones: a ticket that is not held any more is left out.
--
-- An update that has waited for a row which was only locked does not check again whether the lease goes on. A
-- lease that ended meanwhile must not be revived: then all of this is undone and tried again.
--
-- Each lease has a statement of its own. A join of all with the table would depend on statistics, which say that there
-- are no tickets if there were none when they were last gathered: then each lease is compared with each ticket.
CREATE OR REPLACE FUNCTION {renew}(p_names bytea[], p_slots bigint[], p_tokens bigint[], p_ids text[], p_ttls bigint[])
RETURNS SETOF bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $locker$
DECLARE
	r    record;
	late boolean;
BEGIN
	FOR r IN
		SELECT * FROM unnest(p_names, p_slots, p_tokens, p_ids, p_ttls) WITH ORDINALITY AS r(name, slot, token, id, ttl, i)
	LOOP
		UPDATE {tickets} k SET provisional = false,
			expires_at = greatest(k.expires_at, clock_timestamp() + r.ttl * interval '1 microsecond')
		FROM {tickets} was
		WHERE was.name = r.name AND was.slot = r.slot
			AND k.name = r.name AND k.slot = r.slot AND k.token = r.token AND k.id = r.id
			AND k.held AND k.expires_at > clock_timestamp()
		RETURNING was.expires_at <= clock_timestamp() INTO late;
		CONTINUE WHEN NOT FOUND;
		IF late THEN
			RAISE EXCEPTION 'a lease ended meanwhile' USING ERRCODE = 'LK002';
		END IF;
		RETURN NEXT r.i;
	END LOOP;
END $locker$;

-- Makes a lease end p_left microseconds from now, if it would end later, and notifies the process of the first waiter to
-- check the queue. The answer is false if the ticket is not held any more.
CREATE OR REPLACE FUNCTION {shorten}(p_name bytea, p_token bigint, p_id text, p_left bigint) RETURNS boolean LANGUAGE plpgsql AS $locker$
DECLARE
	first bigint;
BEGIN
	UPDATE {tickets} SET expires_at = least(expires_at, clock_timestamp() + p_left * interval '1 microsecond')
		WHERE name = p_name AND slot IN (0, p_token) AND token = p_token AND id = p_id AND held AND expires_at > clock_timestamp();
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	SELECT process INTO first FROM {tickets} WHERE name = p_name AND NOT held ORDER BY slot LIMIT 1;
	IF FOUND THEN
		PERFORM {notify}(first, 'd ' || encode(p_name, 'hex'));
	END IF;
	RETURN true;
END $locker$;

-- Shows that a process lives; with p_new the process may be new. The answer is the number of the heartbeat, or 0 for
-- a process that has expired.
CREATE OR REPLACE FUNCTION {heartbeat}(p_process bigint, p_life bigint, p_new boolean) RETURNS bigint LANGUAGE plpgsql AS $locker$
DECLARE
	n bigint;
BEGIN
	UPDATE {processes} SET heartbeat = heartbeat + 1, alive_until = clock_timestamp() + p_life * interval '1 microsecond'
		WHERE id = p_process AND alive_until > clock_timestamp() RETURNING heartbeat INTO n;
	IF NOT FOUND AND p_new THEN
		INSERT INTO {processes} VALUES (p_process, 1, clock_timestamp() + p_life * interval '1 microsecond')
			ON CONFLICT DO NOTHING RETURNING heartbeat INTO n;
	END IF;
	RETURN coalesce(n, 0);
END $locker$;

-- Reports, without changing anything, when something has to be done in queues: for each name the microseconds until
-- then, -1 if there is something to do now, and whether the first waiter is of p_process.
CREATE OR REPLACE FUNCTION {due}(p_names bytea[], p_process bigint)
RETURNS TABLE (i bigint, due bigint, first boolean) LANGUAGE sql SET enable_seqscan = off AS $locker$
	SELECT n.i, CASE WHEN w.due = '-infinity' THEN -1 ELSE {micros}(w.due) END,
		p_process IS NOT DISTINCT FROM (
			SELECT k.process FROM {tickets} k WHERE k.name = n.name AND NOT k.held ORDER BY k.slot LIMIT 1)
	FROM unnest(p_names) WITH ORDINALITY AS n(name, i), {walk}(n.name, 0, p_process, true) w
$locker$;

-- Does what is due in a queue. The answer is "r" and grants to p_process.
CREATE OR REPLACE FUNCTION {advance}(p_name bytea, p_process bigint) RETURNS text LANGUAGE plpgsql AS $locker$
BEGIN
	IF pg_advisory_xact_lock({key}(p_name)) IS NULL THEN RETURN NULL; END IF;
	RETURN 'r' || (SELECT mine FROM {walk}(p_name, 0, p_process, false));
END $locker$;

-- Removes expired tickets, wherever in a queue they are: on names that nobody uses, and of waiters after a live
-- holder. It visits p_most queues at most, in the order of their names, after p_after; p_last is the last of them,
-- NULL if there are no more. It waits for no lock. p_busy counts the queues in which something is in use, so that
-- expired tickets are left.
CREATE OR REPLACE FUNCTION {sweep}(p_after bytea, p_most bigint, OUT p_last bytea, OUT p_busy bigint) LANGUAGE plpgsql AS $locker$
DECLARE
	n    bytea;
	seen bigint := 0;
BEGIN
	p_busy := 0;
	-- The processes first, as in reap. Processes with tickets after theirs had a second to do this.
	DELETE FROM {processes} WHERE id IN (SELECT id FROM {processes}
		WHERE alive_until < clock_timestamp() - interval '1 second' FOR UPDATE SKIP LOCKED);
	FOR n IN
		SELECT DISTINCT k.name FROM {tickets} k WHERE k.name > p_after AND {expired} ORDER BY k.name LIMIT p_most
	LOOP
		seen := seen + 1;
		p_last := n;
		IF pg_try_advisory_xact_lock({key}(n)) THEN
			DELETE FROM {tickets} WHERE name = n AND slot IN (SELECT k.slot FROM {tickets} k
				WHERE k.name = n AND NOT k.held AND {expired} FOR UPDATE SKIP LOCKED);
			PERFORM {walk}(n, 0, 0, false);
			-- A ticket that is left may be kept by a transaction that it guards.
			CONTINUE WHEN NOT EXISTS (SELECT FROM {tickets} k WHERE k.name = n AND {expired});
		END IF;
		p_busy := p_busy + 1;
	END LOOP;
	IF seen < p_most THEN
		p_last := NULL;
	END IF;
END $locker$;

-- Gives one process at a time the turn to sweep. The answer is 0 for the process that has it, for p_for microseconds, or
-- the microseconds until the next may have it. With p_done nobody has to sweep for p_for. The turn is the row of process
-- 0, which is nobody's and expires like any other.
CREATE OR REPLACE FUNCTION {sweeper}(p_for bigint, p_done boolean) RETURNS bigint LANGUAGE plpgsql AS $locker$
DECLARE
	until timestamptz;
BEGIN
	SELECT alive_until INTO until FROM {processes} WHERE id = 0;
	IF until > clock_timestamp() AND until < clock_timestamp() + interval '1 minute' AND NOT p_done THEN
		RETURN greatest(1, {micros}(until));
	END IF;
	INSERT INTO {processes} AS p VALUES (0, 0, clock_timestamp() + p_for * interval '1 microsecond')
		ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until
		WHERE p_done OR p.alive_until <= clock_timestamp() OR p.alive_until >= clock_timestamp() + interval '1 minute';
	RETURN CASE WHEN FOUND THEN 0 ELSE p_for END;
END $locker$;

-- Ties the transaction that calls it to a ticket: true if the ticket is held, and then nobody else is granted the name
-- until that transaction has ended.
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

-- The queue of a name, in order.
CREATE OR REPLACE FUNCTION {inspect}(p_name bytea) RETURNS TABLE (
	id text, token bigint, owner bytea, note bytea, shared boolean, permits bigint, held boolean, since bigint, remaining bigint)
LANGUAGE sql AS $locker$
	SELECT k.id, k.token, k.owner, k.note, k.shared, k.permits, k.held,
		(extract(epoch FROM k.since) * 1000000)::bigint,
		CASE WHEN k.held THEN (extract(epoch FROM k.expires_at - clock_timestamp()) * 1000000)::bigint ELSE 0 END
	FROM {tickets} k WHERE k.name = p_name AND {live} ORDER BY k.token
$locker$;

-- The names of all queues.
CREATE OR REPLACE FUNCTION {list}() RETURNS SETOF bytea LANGUAGE sql AS $locker$
	SELECT DISTINCT k.name FROM {tickets} k WHERE {live}
$locker$;

-- From here on programs of another version do not find their functions, and report why.
DO $locker$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN
		SELECT p.oid FROM pg_catalog.pg_proc p
		WHERE p.pronamespace = to_regnamespace({schema_text}) AND starts_with(p.proname, {prefix_text})
			AND substr(p.proname, length({prefix_text}) + 1) ~ '^({functions})[0-9]+_[0-9a-f]+$'
			AND right(p.proname, length({suffix_text})) <> {suffix_text}
	LOOP
		EXECUTE 'DROP FUNCTION ' || f;
	END LOOP;
END $locker$;

COMMENT ON TABLE {tickets} IS {comment_text};
