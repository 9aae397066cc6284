-- What shows the queues: to programs, and to people.

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

-- All queues, in order, for people: SELECT * FROM {queues}.
--
-- Text that a terminal may not print as it is (control characters, what changes the
-- direction of writing, what cannot be seen, what is no UTF-8) is shown as \x and
-- hexadecimal digits, which is how one writes a bytea; so is what begins with \x itself.
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

-- From here on programs of another version do not find their functions, and say why.
DO $locker$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN
		SELECT p.oid FROM pg_catalog.pg_proc p
		WHERE p.pronamespace = to_regnamespace({schema_text}) AND starts_with(p.proname, {prefix_text})
			AND substr(p.proname, length({prefix_text}) + 1) ~ '^({functions})[0-9]+(_[0-9a-f]+)?$'
			AND right(p.proname, length({suffix_text})) <> {suffix_text}
	LOOP
		EXECUTE 'DROP FUNCTION ' || f;
	END LOOP;
END $locker$;

COMMENT ON TABLE {tickets} IS {comment_text};
