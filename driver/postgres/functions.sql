-- The functions that take tickets and remove them. Their names end with the version of the schema and
-- a hash of its text, so that programs of another version do not find them.
--
-- A function that queues a ticket, or changes more than one row of a queue, holds the transaction-level advisory lock
-- of the name, so that tickets become visible in the order of their tokens. The exception is hand_over.

-- The key of a name's lock. A transaction that takes the lock must see what others committed before, which it would
-- not in stricter isolation.
CREATE OR REPLACE FUNCTION {key}(p_name bytea) RETURNS bigint LANGUAGE plpgsql AS $locker$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'the queues of locker need READ COMMITTED' USING ERRCODE = 'LK001';
	END IF;
	RETURN hashtextextended(encode(p_name, 'hex'), {name_seed});
END $locker$;

-- The next token of the sequence. The sequence goes back only when committed transactions are lost (a crash
-- with synchronous_commit off, a failover to a replica that lags, a restored backup). Tokens have to grow then
-- too, so the sequence is kept near the clock, in microseconds.
CREATE OR REPLACE FUNCTION {next_token}() RETURNS bigint LANGUAGE plpgsql AS $locker$
DECLARE
	n    bigint := nextval({token_text}::regclass);
	near bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint - 10000;
BEGIN
	-- If another transaction has the lock, it is about to move the sequence, which is visible before it
	-- commits. The lock is the transaction's, so that no error and no cancellation leaves it held.
	FOR i IN 1..3 LOOP
		EXIT WHEN n >= near;
		IF NOT pg_try_advisory_xact_lock({token_key}) THEN
			PERFORM pg_sleep(0.001);
		ELSIF coalesce(pg_sequence_last_value({token_text}), 0) < near THEN
			PERFORM setval({token_text}, near + 10000);
		END IF;
		n := nextval({token_text}::regclass);
	END LOOP;
	RETURN n;
END $locker$;

-- Notifies the driver of a process, unless locker.notify is off: see store.query. The body is an expression, which PostgreSQL
-- inlines into the statements that call the function. It would not inline a query with WHERE, which costs hand-offs.
CREATE OR REPLACE FUNCTION {notify}(p_process bigint, p_payload text) RETURNS boolean LANGUAGE sql AS $locker$
	SELECT CASE WHEN current_setting('locker.notify', true) = 'off' THEN false
		ELSE pg_notify({channel_text} || to_hex(p_process >> 16), p_payload) IS NOT NULL END
$locker$;

-- Walks the queue of a name from its head as far as tickets may be granted: removes expired tickets, grants the
-- grantable ones, and notifies their processes. The caller holds the lock of the name. With p_dry it changes nothing,
-- and due is -infinity if there is something to do.
--
--   ahead    live tickets passed
--   blocked  whether an exclusive one ended the walk
--   due      when the first of the live tickets passed may expire
--   mine     grants to p_process, which is not notified
CREATE OR REPLACE FUNCTION {walk}(p_name bytea, p_permits bigint, p_process bigint, p_dry boolean,
	OUT ahead bigint, OUT blocked boolean, OUT due timestamptz, OUT mine text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $locker$
DECLARE
	t       record;
	ends    timestamptz;
	most    bigint; -- shared tickets at once
	news    text;
	late    timestamptz := clock_timestamp() + interval '20 ms';
BEGIN
	ahead := 0;
	blocked := false;
	due := 'infinity';
	mine := '';
	FOR t IN
		SELECT k.slot, k.token, k.id, k.process, k.held, k.shared, k.permits, k.ttl, k.expires_at, p.heartbeat, p.alive_until
		FROM {tickets} k LEFT JOIN {processes} p ON p.id = k.process AND NOT k.held
		WHERE k.name = p_name ORDER BY k.slot
	LOOP
		IF NOT t.held AND clock_timestamp() > late THEN -- heartbeats may have come since this began, or the process may have left
			SELECT p.heartbeat, p.alive_until INTO t.heartbeat, t.alive_until FROM {processes} p WHERE p.id = t.process;
		END IF;
		ends := CASE WHEN t.held THEN t.expires_at ELSE coalesce(t.alive_until, '-infinity') END;
		IF ends <= clock_timestamp() THEN
			IF p_dry THEN
				due := '-infinity';
				EXIT;
			END IF;
			CONTINUE WHEN {reap}(p_name, t.slot, t.token, t.held, t.process);
			-- Renewed just now, kept by a transaction that it guards, or in use by another walk: check again soon.
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
				held = true, provisional = true, since = clock_timestamp(), expires_at = ends
			WHERE k.name = p_name AND k.slot = t.slot;
			news := format('g %s %s %s', t.id, t.token, t.heartbeat);
			IF t.process = p_process THEN
				mine := mine || E'\n' || news;
			ELSE
				PERFORM {notify}(t.process, news);
			END IF;
		END IF;
		due := least(due, ends);
		ahead := ahead + 1;
		blocked := NOT t.shared;
		EXIT WHEN blocked OR ahead >= most;
	END LOOP;
END $locker$;

-- Removes an expired ticket; false if it is not expired, or cannot be removed now. A process that let its
-- tickets expire is removed before them: no later heartbeat revives it. This waits for no lock, because two
-- walks may meet the same processes in different orders.
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

-- Takes a ticket. The first line of the answer is one of
--
--   g TOKEN  granted
--   w DUE    queued; DUE: microseconds until the head of the queue is due
--   n        not granted, and does not wait
--   p        has to wait, but the process is not registered
--   t NOW    too late: NOW is after p_until; both in microseconds of the clock
--
-- and the others are grants to p_process, as in all answers: g ID TOKEN HEARTBEAT.
CREATE OR REPLACE FUNCTION {acquire}(p_name bytea, p_id text, p_process bigint, p_shared boolean, p_permits bigint,
	p_ttl bigint, p_wait boolean, p_owner bytea, p_note bytea, p_until bigint)
RETURNS text LANGUAGE plpgsql AS $locker$
DECLARE
	old  record;
	head record;
	w    record;
	num  bigint;
	time bigint;
BEGIN
	IF pg_advisory_xact_lock({key}(p_name)) IS NULL THEN RETURN NULL; END IF; -- cheaper than PERFORM
	time := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
	IF time > p_until THEN
		RETURN 't ' || time;
	END IF;
	num := {next_token}();
	INSERT INTO {tickets}
		SELECT p_name, CASE WHEN p_shared THEN num ELSE 0 END, num, p_id, p_process, false, true, false,
			p_shared, p_permits, p_ttl, clock_timestamp(), clock_timestamp() + p_ttl * interval '1 microsecond', p_owner, p_note
		WHERE NOT EXISTS (SELECT FROM {tickets} WHERE name = p_name);
	IF FOUND THEN
		RETURN 'g ' || num;
	END IF;

	IF p_wait THEN
		-- From now on the holder grants the next when it releases.
		UPDATE {tickets} SET queued = true WHERE name = p_name AND slot = 0 AND NOT queued;
		-- If an exclusive holder's lease goes on, no walk is needed. If the holder is being released just now, then
		-- either hand_over sees another ticket, which is ahead of this one, or the release waits for the lock of the
		-- name.
		SELECT k.id, k.expires_at,
			EXISTS (SELECT FROM {tickets} t WHERE t.id = p_id AND t.slot <> 0) AS again,
			EXISTS (SELECT FROM {processes} p WHERE p.id = p_process AND p.alive_until > clock_timestamp()) AS alive
			INTO head FROM {tickets} k WHERE k.name = p_name AND k.slot = 0;
		IF head.id <> p_id AND head.expires_at > clock_timestamp() AND head.alive AND NOT head.again THEN
			INSERT INTO {tickets} VALUES (p_name, num, num, p_id, p_process, true, false, false, p_shared, p_permits,
				p_ttl, clock_timestamp(), NULL, p_owner, p_note);
			RETURN 'w ' || {micros}(head.expires_at);
		END IF;
	END IF;
	SELECT k.token, k.held, k.expires_at INTO old FROM (
		SELECT * FROM {tickets} WHERE name = p_name AND slot = 0 AND id = p_id
		UNION ALL
		SELECT * FROM {tickets} WHERE id = p_id AND slot <> 0 AND name = p_name) k;
	IF old.held THEN -- the answer to an earlier request was lost, or this is that request, which is late: its process may not know
		UPDATE {tickets} SET expires_at = greatest(expires_at, clock_timestamp() + p_ttl * interval '1 microsecond')
		WHERE name = p_name AND slot IN (0, old.token) AND id = p_id AND expires_at > clock_timestamp();
		IF FOUND THEN
			IF old.expires_at <= clock_timestamp() THEN -- it waited for the row
				RAISE EXCEPTION 'the lease ended meanwhile' USING ERRCODE = 'LK002';
			END IF;
			RETURN 'g ' || old.token;
		END IF;
	END IF;
	SELECT * INTO w FROM {walk}(p_name, p_permits, p_process, false);
	IF NOT old.held THEN
		-- It may have been granted by this very walk, or have expired.
		SELECT k.token, k.held INTO old FROM {tickets} k WHERE k.name = p_name AND k.slot IN (0, old.token) AND k.id = p_id;
		IF old.held THEN
			UPDATE {tickets} SET expires_at = clock_timestamp() + p_ttl * interval '1 microsecond'
			WHERE name = p_name AND slot IN (0, old.token) AND id = p_id;
			RETURN 'g ' || old.token || w.mine;
		ELSIF FOUND THEN
			RETURN 'w ' || {micros}(w.due) || w.mine;
		END IF;
	END IF;
	IF NOT w.blocked AND w.ahead < (CASE WHEN p_shared THEN p_permits ELSE 1 END) THEN
		INSERT INTO {tickets} VALUES (p_name, CASE WHEN p_shared THEN num ELSE 0 END, num, p_id, p_process, false, true, false,
			p_shared, p_permits, p_ttl, clock_timestamp(), clock_timestamp() + p_ttl * interval '1 microsecond', p_owner, p_note);
		RETURN 'g ' || num || w.mine;
	ELSIF NOT p_wait THEN
		RETURN 'n' || w.mine;
	ELSIF NOT EXISTS (SELECT FROM {processes} WHERE id = p_process AND alive_until > clock_timestamp()) THEN
		RETURN 'p' || w.mine;
	END IF;
	INSERT INTO {tickets} VALUES (p_name, num, num, p_id, p_process, true, false, false, p_shared, p_permits,
		p_ttl, clock_timestamp(), NULL, p_owner, p_note);
	RETURN 'w ' || {micros}(w.due) || w.mine;
END $locker$;

-- Removes an exclusive ticket and grants the next, without the lock of the name: NULL, having changed nothing,
-- if that is not possible.
--
-- Tokens are given, and tickets inserted, under the lock of the name. So a ticket that is not visible yet has a higher
-- token than all visible ones, and the first visible one is the next. The deletion proves that p_id is the holder:
-- until this transaction ends nobody else takes slot 0, nor grants the next ticket. The next ticket may leave, and its
-- row is then missing: all of this is undone and tried again.
--
-- The holder's row is locked before the next ticket's, as in walk, and no lock is waited for afterwards.
CREATE OR REPLACE FUNCTION {hand_over}(p_name bytea, p_id text, p_process bigint) RETURNS text LANGUAGE plpgsql AS $locker$
DECLARE
	next   record;
	answer text;
	news   text;
BEGIN
	SELECT k.slot, k.token, k.id, k.process, k.shared, p.heartbeat, p.alive_until INTO next
		FROM {tickets} k LEFT JOIN {processes} p ON p.id = k.process
		WHERE k.name = p_name AND k.slot > 0 ORDER BY k.slot LIMIT 1;
	IF next.shared OR next.alive_until <= clock_timestamp() OR next.alive_until IS NULL THEN
		RETURN NULL; -- several may be next, or another
	END IF;
	DELETE FROM {tickets} WHERE name = p_name AND slot = 0 AND id = p_id AND xmax = 0
		RETURNING CASE WHEN expires_at > clock_timestamp() THEN 'r' ELSE 'l' END INTO answer;
	IF answer IS NULL THEN
		RETURN NULL; -- it is not held, or may guard a transaction: see end_lease
	END IF;
	UPDATE {tickets} SET slot = 0, held = true, provisional = true, since = clock_timestamp(),
			expires_at = least(clock_timestamp() + ttl * interval '1 microsecond', next.alive_until)
		WHERE name = p_name AND slot = next.slot;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the next waiter has left just now' USING ERRCODE = 'LK002';
	END IF;
	news := format('g %s %s %s', next.id, next.token, next.heartbeat);
	IF next.process = p_process THEN
		RETURN answer || E'\n' || news;
	END IF;
	PERFORM {notify}(next.process, news);
	RETURN answer;
END $locker$;

-- Removes a ticket and grants the next. The answer is "r", or "l" if the ticket was not there or its lease
-- was over, and grants to p_process.
CREATE OR REPLACE FUNCTION {release}(p_name bytea, p_id text, p_process bigint) RETURNS text LANGUAGE plpgsql AS $locker$
DECLARE
	answer text;
	p_slot bigint;
	more   boolean := true;
BEGIN
	-- No ticket waits for one that is not marked as queued, since a request marks it before it waits. So it is removed
	-- without the lock of the name. An xmax of 0 says that no transaction has locked the row.
	DELETE FROM {tickets} WHERE name = p_name AND slot = 0 AND id = p_id AND NOT queued AND xmax = 0
		RETURNING CASE WHEN expires_at > clock_timestamp() THEN 'r' ELSE 'l' END INTO answer;
	IF answer IS NULL THEN
		answer := {hand_over}(p_name, p_id, p_process);
	END IF;
	IF answer IS NOT NULL THEN
		RETURN answer;
	END IF;
	IF pg_advisory_xact_lock({key}(p_name)) IS NULL THEN RETURN NULL; END IF;
	answer := 'r';
	DELETE FROM {tickets} WHERE id = p_id AND slot <> 0 AND name = p_name AND NOT held;
	IF NOT FOUND THEN
		SELECT k.slot, CASE WHEN k.expires_at > clock_timestamp() THEN 'r' ELSE 'l' END INTO p_slot, answer FROM (
			SELECT * FROM {tickets} WHERE name = p_name AND slot = 0 AND id = p_id
			UNION ALL
			SELECT * FROM {tickets} WHERE id = p_id AND slot <> 0 AND name = p_name) k;
		more := {end_lease}(p_name, p_slot, p_id);
	END IF;
	RETURN CASE WHEN more THEN answer || (SELECT mine FROM {walk}(p_name, 0, p_process, false)) WHEN more IS NULL THEN 'l' ELSE answer END;
END $locker$;

-- Removes a held ticket, with the lock of the name; NULL if it is not there. A guard locks the row FOR KEY SHARE,
-- which forbids its deletion but no update. Then the lease is ended, and reap removes the row later, so that nobody
-- has to wait for the end of that transaction. The answer is false, and the process of the first waiter is notified to
-- check the queue.
CREATE OR REPLACE FUNCTION {end_lease}(p_name bytea, p_slot bigint, p_id text) RETURNS boolean LANGUAGE plpgsql AS $locker$
DECLARE
	first bigint;
BEGIN
	FOR i IN 1..2 LOOP
		PERFORM FROM {tickets} WHERE name = p_name AND slot = p_slot AND id = p_id AND held FOR UPDATE SKIP LOCKED;
		IF FOUND THEN
			DELETE FROM {tickets} WHERE name = p_name AND slot = p_slot AND id = p_id;
			RETURN true;
		END IF;
		-- This waits for, say, a renewal that is under way.
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

-- Removes a ticket by its token, whoever owns it, and notifies its process. The answer is that of release.
CREATE OR REPLACE FUNCTION {break}(p_name bytea, p_token bigint, p_process bigint) RETURNS text LANGUAGE plpgsql AS $locker$
DECLARE
	gone   record;
	more   boolean;
BEGIN
	IF pg_advisory_xact_lock({key}(p_name)) IS NULL THEN RETURN NULL; END IF;
	SELECT k.id, k.process, k.slot, k.held, CASE WHEN {live} THEN 'r' ELSE 'l' END AS answer INTO gone
		FROM {tickets} k WHERE k.name = p_name AND k.slot IN (0, p_token) AND k.token = p_token;
	IF gone.held THEN
		more := {end_lease}(p_name, gone.slot, gone.id);
	ELSE -- hand_over may be granting it
		DELETE FROM {tickets} WHERE name = p_name AND slot IN (0, p_token) AND token = p_token RETURNING true INTO more;
	END IF;
	IF more IS NULL THEN
		RETURN 'l';
	END IF;
	PERFORM {notify}(gone.process, format('l %s %s %s', gone.id, p_token, encode(p_name, 'hex')));
	RETURN CASE WHEN more THEN gone.answer || (SELECT mine FROM {walk}(p_name, 0, p_process, false)) ELSE gone.answer END;
END $locker$;
