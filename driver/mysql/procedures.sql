-- The procedures that change queues: each is one request and one transaction, and so no client holds the lock of a row while
-- it is slow. A heartbeat waits for none of them, but to expire.
--
-- They lock the slot of the name (who inserts a ticket, or repairs a queue), the anchor, and then other tickets, by the
-- primary key. A release does not wait for the slot, where all wait that want a name: while the anchor is locked nobody
-- inserts a ticket of the name or grants one, so what is visible then is the queue.
--
-- Commits say that no transaction follows: with completion_type=CHAIN one would, which nobody commits.
--
-- What is read without a lock is read by SELECT … INTO: InnoDB locks what SET and IF read.
--
-- {edition} fails with error 1054 where the tables are of another version. It is in what a program may begin with that does not
-- use the column of the slots.
--
-- An answer is one row: what was done (see procedures.go), a number that belongs to it, and the grants to tickets of the
-- process that asked, in lines.

-- call_clock: the time, a number for this server and its start, and the start that tokens were last raised for.
CREATE PROCEDURE {call_clock}()
READS SQL DATA SQL SECURITY INVOKER
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), {server}, COALESCE((SELECT start FROM {slots} WHERE {column} = 0), 0)
FROM DUAL WHERE {autocommit}

-- call_mine: the tickets of a process that have a provisional lease and, with p_all, those that wait. Under READ UNCOMMITTED it
-- would show grants that are undone. A server that was demoted does not know the tickets of the next primary.
CREATE PROCEDURE {call_mine}(IN p_process BIGINT, IN p_all TINYINT)
READS SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_done TINYINT;
  SELECT 1 INTO v_done FROM DUAL WHERE {autocommit} AND {edition} AND {primary};
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  SELECT seq, id, held, COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at), 0)
  FROM {tickets} WHERE provisional IN (1, 1 - p_all) AND process = p_process AND id IS NOT NULL AND (held = 0 OR provisional = 1);
END

-- call_show: a queue as Inspect shows it or, where the name is NULL, the names that have a live ticket. Isolation: as in call_mine.
CREATE PROCEDURE {call_show}(IN p_name VARBINARY(512))
READS SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_done TINYINT;
  SELECT 1 INTO v_done FROM DUAL WHERE {autocommit} AND {edition};
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  IF p_name IS NULL THEN
    SELECT DISTINCT t.name FROM {tickets} AS t LEFT JOIN {processes} AS p ON p.id = t.process
    WHERE t.name IS NOT NULL AND IF(t.held, t.expires_at, p.alive_until) > UTC_TIMESTAMP(6);
  ELSE
    SELECT t.seq, t.id, t.owner, t.note, t.shared, t.permits, t.held, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.since),
      COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), t.expires_at), 0)
    FROM {tickets} AS t LEFT JOIN {processes} AS p ON p.id = t.process
    WHERE t.name = p_name AND IF(t.held, t.expires_at, p.alive_until) > UTC_TIMESTAMP(6) ORDER BY t.seq;
  END IF;
END

-- call_wake: interrupt the connections of some processes, which sleep, as long as the locks are there that they wait for. A comma
-- follows each. No error of it is one of the request, which is committed.
CREATE PROCEDURE {call_wake}(IN p_processes MEDIUMBLOB)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_process, v_connection BIGINT;
  WHILE p_processes <> '' DO
    SET v_process = SUBSTRING_INDEX(p_processes, ',', 1);
    SET p_processes = SUBSTRING(p_processes, LOCATE(',', p_processes) + 1);
    SELECT (SELECT connection FROM {processes} WHERE id = v_process
      AND IS_USED_LOCK(CONCAT('locker.', server, '.', connection)) IS NOT NULL) INTO v_connection;
    IF v_connection > 0 THEN
      BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN END;
        DECLARE CONTINUE HANDLER FOR 1095 UPDATE {processes} SET connection = -1 WHERE id = v_process AND connection = v_connection;
        KILL QUERY v_connection;
      END;
    END IF;
  END WHILE;
END

-- call_walk: remove what has expired at the head of a queue that is locked, or everywhere in it, and grant what is grantable.
-- What has expired and is in use stays, and is counted. P_woken: the processes to wake after the commit. If many are granted,
-- heartbeats may have come since the walk began, whose life the leases have.
CREATE PROCEDURE {call_walk}(IN p_name VARBINARY(512), IN p_process BIGINT, IN p_all TINYINT,
  OUT p_left BIGINT, INOUT p_mine MEDIUMBLOB, INOUT p_woken MEDIUMBLOB)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_end, v_held, v_shared, v_free, v_there TINYINT DEFAULT 0;
  DECLARE v_entry VARBINARY(512);
  DECLARE v_id VARBINARY(64);
  DECLARE v_now, v_alive DATETIME(6);
  DECLARE v_seq, v_bound BIGINT UNSIGNED DEFAULT 18446744073709551615;
  DECLARE v_process, v_silent, v_guards, v_heartbeat BIGINT;
  DECLARE c_expired CURSOR FOR
    SELECT t.entry, t.seq, t.process, t.held FROM {tickets} AS t FORCE INDEX (queue) LEFT JOIN {processes} AS p ON p.id = t.process
    WHERE t.name = p_name AND t.seq < v_bound AND NOT COALESCE(IF(t.held, t.expires_at, p.alive_until) > v_now, 0)
    ORDER BY t.held, t.process, t.seq;
  DECLARE c_grantable CURSOR FOR
    SELECT q.entry, q.seq, q.id, q.process, q.shared, p.heartbeat, p.alive_until FROM (
      SELECT t.entry, t.seq, t.id, t.process, t.held, t.shared, t.permits, ROW_NUMBER() OVER (ORDER BY t.seq) AS place
      FROM {tickets} AS t FORCE INDEX (queue) WHERE t.name = p_name AND t.seq <= v_bound
    ) AS q JOIN {processes} AS p ON p.id = q.process
    WHERE q.held = 0 AND p.alive_until > v_now AND IF(q.shared, q.permits = 0 OR q.place <= q.permits, q.place = 1) ORDER BY q.seq;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_end = 1;
  SET v_now = UTC_TIMESTAMP(6), p_left = 0;
  IF NOT p_all THEN
    SELECT COALESCE((SELECT t.seq FROM {tickets} AS t FORCE INDEX (queue) LEFT JOIN {processes} AS p ON p.id = t.process
      WHERE t.name = p_name AND t.shared = 0 AND IF(t.held, t.expires_at, p.alive_until) > v_now
      ORDER BY t.seq LIMIT 1), v_bound) INTO v_bound;
  END IF;
  OPEN c_expired;
  FETCH c_expired INTO v_entry, v_seq, v_process, v_held;
  WHILE NOT v_end DO
    IF NOT v_held AND NOT v_process <=> v_silent THEN
      DELETE FROM {processes} WHERE id = v_process AND alive_until <= v_now;
      SELECT v_process, EXISTS (SELECT 1 FROM {processes} WHERE id = v_process) INTO v_silent, v_there;
    END IF;
    SET v_guards = NULL;
    SELECT guards INTO v_guards FROM {tickets} FORCE INDEX (PRIMARY) WHERE entry = v_entry AND IF(held, expires_at <= v_now, NOT v_there) FOR UPDATE SKIP LOCKED;
    SET v_free = v_guards <= 0;
    IF v_guards > 0 THEN
      SELECT 1 INTO v_free FROM {tickets} FORCE INDEX (queue) WHERE name = p_name AND seq = v_seq FOR UPDATE SKIP LOCKED;
    END IF;
    IF v_free AND v_entry = p_name THEN
      UPDATE {tickets} SET {vacated} WHERE entry = p_name;
    ELSEIF v_free THEN
      DELETE FROM {tickets} WHERE entry = v_entry;
    ELSE
      SET p_left = p_left + 1;
    END IF;
    SET v_end = 0;
    FETCH c_expired INTO v_entry, v_seq, v_process, v_held;
  END WHILE;
  CLOSE c_expired;
  SELECT 0, COALESCE((SELECT seq FROM {tickets} FORCE INDEX (queue)
    WHERE name = p_name AND shared = 0 ORDER BY seq LIMIT 1), 18446744073709551615) INTO v_end, v_bound;
  OPEN c_grantable;
  FETCH c_grantable INTO v_entry, v_seq, v_id, v_process, v_shared, v_heartbeat, v_alive;
  WHILE NOT v_end DO
    IF NOT v_shared THEN
      DELETE FROM {tickets} WHERE entry = p_name AND name IS NULL;
    END IF;
    SELECT COALESCE((SELECT alive_until FROM {processes} WHERE id = v_process), v_alive) INTO v_alive;
    UPDATE {tickets} SET {granted} WHERE entry = v_entry;
    IF v_process = p_process THEN
      SET p_mine = CONCAT(p_mine, 'g ', v_id, ' ', v_seq, ' ', v_heartbeat, x'0a');
    ELSEIF NOT FIND_IN_SET(v_process, p_woken) THEN
      SET p_woken = CONCAT(p_woken, v_process, ',');
    END IF;
    FETCH c_grantable INTO v_entry, v_seq, v_id, v_process, v_shared, v_heartbeat, v_alive;
  END WHILE;
  CLOSE c_grantable;
  SELECT EXISTS (SELECT 1 FROM {tickets} WHERE name = p_name) INTO v_there;
  IF NOT v_there THEN
    DELETE FROM {tickets} WHERE entry = p_name AND name IS NULL;
  END IF;
END

-- call_take: take a ticket. What waits behind an exclusive holder needs no walk.
CREATE PROCEDURE {call_take}(IN p_slot SMALLINT UNSIGNED, IN p_name VARBINARY(512), IN p_entry VARBINARY(80), IN p_id VARBINARY(64),
  IN p_process BIGINT, IN p_shared TINYINT, IN p_permits BIGINT, IN p_ttl BIGINT, IN p_wait TINYINT,
  IN p_owner VARBINARY(2048), IN p_note VARBINARY(2048), IN p_until DATETIME(6), IN p_start BIGINT UNSIGNED)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_here, v_held, v_shared, v_queued, v_own, v_alive, v_done TINYINT;
  DECLARE v_blocked TINYINT DEFAULT 0;
  DECLARE v_id VARBINARY(64);
  DECLARE v_ends, v_now DATETIME(6);
  DECLARE v_seq, v_first BIGINT UNSIGNED;
  DECLARE v_number, v_left BIGINT DEFAULT 0;
  DECLARE v_mine, v_woken MEDIUMBLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
  SELECT 1 INTO v_done FROM DUAL WHERE {autocommit};
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT ({server}) = p_start INTO v_here FROM {slots} WHERE {column} = p_slot FOR UPDATE;
  SELECT id, held, shared, queued, expires_at INTO v_id, v_held, v_shared, v_queued, v_ends FROM {tickets} WHERE entry = p_name FOR UPDATE;
  SET v_now = UTC_TIMESTAMP(6), v_done = CASE WHEN v_here IS NULL THEN 6 WHEN NOT v_here OR v_now >= p_until THEN 5 ELSE 0 END;
  IF v_done = 0 AND v_held = 1 AND v_shared = 0 AND v_id <> p_id AND v_ends > v_now THEN
    SET v_blocked = 1;
    SELECT seq, held INTO v_seq, v_own FROM {tickets} WHERE entry = p_entry AND id = p_id AND name = p_name;
  ELSEIF v_done = 0 AND v_queued IS NOT NULL THEN
    CALL {call_walk}(p_name, p_process, 0, v_left, v_mine, v_woken);
    SELECT (SELECT queued FROM {tickets} WHERE entry = p_name) INTO v_queued;
    SELECT seq, held INTO v_seq, v_own FROM {tickets} WHERE entry IN (p_name, p_entry) AND id = p_id AND name = p_name;
    SELECT EXISTS (SELECT 1 FROM {tickets} FORCE INDEX (queue) WHERE name = p_name AND (shared = 0 OR NOT p_shared)) OR
      p_permits > 0 AND (SELECT COUNT(*) FROM {tickets} FORCE INDEX (queue) WHERE name = p_name) >= p_permits INTO v_blocked;
    SELECT (SELECT seq FROM {tickets} FORCE INDEX (queue) WHERE name = p_name AND shared = 0 ORDER BY seq LIMIT 1) INTO v_first;
    SELECT MIN(COALESCE(IF(t.held, t.expires_at, p.alive_until), v_now)) INTO v_ends
      FROM {tickets} AS t FORCE INDEX (queue) LEFT JOIN {processes} AS p ON p.id = t.process
      WHERE t.name = p_name AND t.seq <= COALESCE(v_first, 18446744073709551615);
  END IF;
  SELECT EXISTS (SELECT 1 FROM {processes} WHERE id = p_process AND alive_until > v_now) INTO v_alive;
  SET v_number = LEAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, v_now, v_ends), 0), 3600000000);
  IF v_done > 0 THEN
    SET v_number = 0;
  ELSEIF v_own THEN
    SELECT expires_at INTO v_ends FROM {tickets} WHERE entry IN (p_name, p_entry) AND id = p_id AND name = p_name FOR UPDATE;
    SET v_now = UTC_TIMESTAMP(6), v_done = 7;
    IF v_ends > v_now THEN
      UPDATE {tickets} SET expires_at = GREATEST(expires_at, v_now + INTERVAL p_ttl MICROSECOND)
        WHERE entry IN (p_name, p_entry) AND id = p_id AND name = p_name;
      SET v_done = 1, v_number = v_seq;
    END IF;
  ELSEIF v_seq IS NOT NULL THEN
    SET v_done = 2;
  ELSEIF v_blocked AND NOT p_wait THEN
    SET v_done = 3;
  ELSEIF v_blocked AND NOT v_alive THEN
    SET v_done = 4;
  ELSE
    INSERT INTO {tickets} (entry, name, id, process, queued, held, shared, permits, ttl, since, expires_at, owner, note)
    VALUES (IF(v_queued IS NULL, p_name, p_entry), p_name, p_id, p_process, 0, NOT v_blocked, p_shared, p_permits, p_ttl, v_now,
      IF(v_blocked, NULL, v_now + INTERVAL p_ttl MICROSECOND), p_owner, p_note);
    SET v_done = IF(v_blocked, 2, 1), v_number = IF(v_blocked, v_number, LAST_INSERT_ID());
    IF v_queued = 0 THEN
      UPDATE {tickets} SET queued = 1 WHERE entry = p_name;
    END IF;
  END IF;
  COMMIT AND NO CHAIN NO RELEASE;
  IF v_woken <> '' THEN
    BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN END; CALL {call_wake}(v_woken); END;
  END IF;
  SELECT v_done, v_number, v_mine AS mine;
END

-- call_remove: remove a ticket, by its ID or its token, and grant what becomes grantable. A ticket that a transaction guards
-- stays, and its lease ends: the queue moves on when it is reaped. To hand over from an exclusive holder to another needs no walk.
CREATE PROCEDURE {call_remove}(IN p_name VARBINARY(512), IN p_entry VARBINARY(80), IN p_id VARBINARY(64), IN p_token BIGINT UNSIGNED,
  IN p_process BIGINT)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_held, v_shared, v_queued, v_next_shared, v_free, v_done TINYINT;
  DECLARE v_walks TINYINT DEFAULT 1;
  DECLARE v_id VARBINARY(64);
  DECLARE v_entry VARBINARY(512);
  DECLARE v_ends, v_now, v_alive DATETIME(6);
  DECLARE v_seq BIGINT UNSIGNED;
  DECLARE v_guards, v_process, v_heartbeat BIGINT;
  DECLARE v_left BIGINT DEFAULT 0;
  DECLARE v_mine, v_woken MEDIUMBLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
  SELECT 1 INTO v_done FROM DUAL WHERE {autocommit} AND {edition};
  SET v_done = 0;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT id, seq, held, shared, queued, guards, expires_at INTO v_id, v_seq, v_held, v_shared, v_queued, v_guards, v_ends
    FROM {tickets} WHERE entry = p_name FOR UPDATE;
  SET v_now = UTC_TIMESTAMP(6);
  IF v_held = 1 AND v_shared = 0 AND v_ends > v_now AND v_guards = 0 AND (v_id = p_id OR v_seq = p_token) THEN
    SELECT t.entry, t.seq, t.id, t.process, t.shared, p.heartbeat, p.alive_until
      INTO v_entry, v_seq, v_id, v_process, v_next_shared, v_heartbeat, v_alive
      FROM {tickets} AS t FORCE INDEX (queue) LEFT JOIN {processes} AS p ON p.id = t.process
      WHERE t.name = p_name AND t.seq > v_seq ORDER BY t.seq LIMIT 1;
    IF v_entry IS NULL OR v_next_shared = 0 AND v_alive > v_now THEN
      DELETE FROM {tickets} WHERE entry = p_name;
      SET v_done = 1, v_walks = 0;
    END IF;
    IF v_done = 1 AND v_entry IS NOT NULL THEN
      UPDATE {tickets} SET {granted} WHERE entry = v_entry;
      IF v_process = p_process THEN
        SET v_mine = CONCAT('g ', v_id, ' ', v_seq, ' ', v_heartbeat);
      ELSE
        SET v_woken = CONCAT(v_process, ',');
      END IF;
    END IF;
  END IF;
  IF v_walks THEN
    SELECT IF(p_token > 0, (SELECT entry FROM {tickets} WHERE seq = p_token AND name = p_name),
      (SELECT entry FROM {tickets} WHERE entry IN (p_name, p_entry) AND id = p_id AND name = p_name LIMIT 1)) INTO v_entry;
    SET v_guards = NULL, v_free = 1;
    SELECT seq, process, held, guards, expires_at INTO v_seq, v_process, v_held, v_guards, v_ends FROM {tickets} WHERE entry = v_entry FOR UPDATE;
    SET v_now = UTC_TIMESTAMP(6);
    IF v_guards IS NOT NULL AND NOT v_held THEN
      SELECT (SELECT alive_until FROM {processes} WHERE id = v_process) INTO v_ends;
      IF v_process <> p_process THEN
        SET v_woken = CONCAT(v_process, ',');
      END IF;
    END IF;
    IF v_guards IS NOT NULL THEN
      SET v_done = COALESCE(v_ends > v_now, 0);
    END IF;
    IF v_guards > 0 THEN
      SET v_free = 0;
      SELECT 1 INTO v_free FROM {tickets} FORCE INDEX (queue) WHERE name = p_name AND seq = v_seq FOR UPDATE SKIP LOCKED;
    END IF;
    IF NOT v_free THEN
      UPDATE {tickets} SET expires_at = LEAST(expires_at, v_now) WHERE entry = v_entry AND held = 1;
      SELECT COALESCE(CONCAT((SELECT process FROM {tickets} FORCE INDEX (queue)
        WHERE name = p_name AND held = 0 ORDER BY seq LIMIT 1), ','), v_woken) INTO v_woken;
    ELSEIF v_guards IS NOT NULL AND v_entry = p_name THEN
      UPDATE {tickets} SET {vacated} WHERE entry = p_name;
    ELSEIF v_guards IS NOT NULL THEN
      DELETE FROM {tickets} WHERE entry = v_entry;
    END IF;
    IF v_free AND v_guards IS NOT NULL AND v_queued IS NOT NULL THEN
      CALL {call_walk}(p_name, p_process, 0, v_left, v_mine, v_woken);
    END IF;
  END IF;
  COMMIT AND NO CHAIN NO RELEASE;
  IF v_woken <> '' THEN
    BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN END; CALL {call_wake}(v_woken); END;
  END IF;
  SELECT v_done, 0, v_mine AS mine;
END

-- call_advance: let a queue move on. With p_sweep it waits for nobody (0: the queue is in use), and removes all that has expired.
CREATE PROCEDURE {call_advance}(IN p_slot SMALLINT UNSIGNED, IN p_name VARBINARY(512), IN p_process BIGINT, IN p_sweep TINYINT)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_slot, v_anchor, v_done TINYINT;
  DECLARE v_left BIGINT DEFAULT 0;
  DECLARE v_mine, v_woken MEDIUMBLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
  SELECT 1 INTO v_done FROM DUAL WHERE {autocommit};
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  IF p_sweep THEN
    SELECT 1 INTO v_slot FROM {slots} WHERE {column} = p_slot FOR UPDATE SKIP LOCKED;
    SELECT 1 INTO v_anchor FROM {tickets} WHERE entry = p_name FOR UPDATE SKIP LOCKED;
    SELECT v_slot IS NOT NULL AND (v_anchor IS NOT NULL OR NOT EXISTS (SELECT 1 FROM {tickets} WHERE entry = p_name)) INTO v_done;
  ELSE
    SELECT 1 INTO v_slot FROM {slots} WHERE {column} = p_slot FOR UPDATE;
    SELECT 1 INTO v_anchor FROM {tickets} WHERE entry = p_name FOR UPDATE;
    SET v_done = IF(v_slot IS NULL, 6, 1);
  END IF;
  IF v_done = 1 THEN
    CALL {call_walk}(p_name, p_process, p_sweep, v_left, v_mine, v_woken);
  END IF;
  COMMIT AND NO CHAIN NO RELEASE;
  IF v_woken <> '' THEN
    BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN END; CALL {call_wake}(v_woken); END;
  END IF;
  SELECT v_done, v_left, v_mine AS mine;
END
