-- The procedures that queue tickets and hand locks over: what the statements take and release do
-- not do, and several statements of grant.go otherwise do, in one request. A queue that they do not decide (holders
-- that share it, a lease that is over, a ticket that a transaction guards) they leave as it is, and answer 0.
--
-- They lock rows by the primary key: the slot of the name (who inserts a ticket), the anchor, and then other tickets. A
-- release does not wait for the slot, where all wait that want a name: while the anchor is locked nobody inserts a ticket
-- of the name or grants one, so what is visible then is the queue. They lock no row of {processes}: a heartbeat never
-- waits for a queue.
--
-- An answer is one row: what was done, a number that belongs to it, and the grant to a ticket of the process that asked.
-- The numbers of what was done are in procedures.go.

-- call_take: queue a ticket behind an exclusive holder, or take a free name.
CREATE PROCEDURE {call_take}(IN p_slot SMALLINT UNSIGNED, IN p_name VARBINARY(512), IN p_entry VARBINARY(80), IN p_id VARBINARY(64),
  IN p_process BIGINT, IN p_shared TINYINT, IN p_permits BIGINT, IN p_ttl BIGINT, IN p_wait TINYINT,
  IN p_owner VARBINARY(2048), IN p_note VARBINARY(2048), IN p_until DATETIME(6), IN p_start BIGINT UNSIGNED)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_here, v_held, v_shared, v_queued, v_alive, v_there, v_done TINYINT;
  DECLARE v_id VARBINARY(64);
  DECLARE v_ends, v_now DATETIME(6);
  DECLARE v_number BIGINT DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SELECT 1 INTO v_done FROM DUAL WHERE {autocommit};
  SET v_done = 0;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT ({server}) = p_start INTO v_here FROM {slots} WHERE {column} = p_slot FOR UPDATE;
  SELECT id, held, shared, queued, expires_at INTO v_id, v_held, v_shared, v_queued, v_ends FROM {tickets} WHERE entry = p_name FOR UPDATE;
  SET v_now = UTC_TIMESTAMP(6);
  IF v_here IS NULL THEN
    SET v_done = 0;
  ELSEIF NOT v_here OR v_now >= p_until THEN
    SET v_done = 5;
  ELSEIF v_queued IS NULL THEN
    INSERT INTO {tickets} (entry, name, id, process, queued, held, shared, permits, ttl, since, expires_at, owner, note)
    VALUES (p_name, p_name, p_id, p_process, 0, 1, p_shared, p_permits, p_ttl, v_now, v_now + INTERVAL p_ttl MICROSECOND, p_owner, p_note);
    SET v_done = 1, v_number = LAST_INSERT_ID();
  ELSEIF v_held = 1 AND v_shared = 0 AND v_id <> p_id AND v_ends > v_now THEN
    SET v_number = LEAST(TIMESTAMPDIFF(MICROSECOND, v_now, v_ends), 3600000000);
    SELECT 1 INTO v_there FROM {tickets} WHERE entry = p_entry;
    SELECT 1 INTO v_alive FROM {processes} WHERE id = p_process AND alive_until > v_now;
    IF NOT p_wait THEN
      SET v_done = 3;
    ELSEIF v_there IS NULL AND v_alive IS NULL THEN
      SET v_done = 4;
    ELSEIF v_there IS NULL THEN
      INSERT INTO {tickets} (entry, name, id, process, queued, held, shared, permits, ttl, since, owner, note)
      VALUES (p_entry, p_name, p_id, p_process, 0, 0, p_shared, p_permits, p_ttl, v_now, p_owner, p_note);
      IF v_queued = 0 THEN
        UPDATE {tickets} SET queued = 1 WHERE entry = p_name;
      END IF;
      SET v_done = 2;
    END IF;
  END IF;
  COMMIT;
  SELECT v_done, v_number, '' AS mine;
END

-- call_remove: remove an exclusive holder and grant the next ticket, if that is exclusive too; or remove one that waits behind
-- an exclusive holder. The process of the next ticket is woken after the commit,
-- and no error of that is one of the removal.
CREATE PROCEDURE {call_remove}(IN p_name VARBINARY(512), IN p_entry VARBINARY(80), IN p_id VARBINARY(64),
  IN p_process BIGINT)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE v_held, v_shared, v_queued, v_next_shared, v_done TINYINT;
  DECLARE v_id, v_next_id VARBINARY(64);
  DECLARE v_entry VARBINARY(80);
  DECLARE v_ends, v_now, v_alive_until DATETIME(6);
  DECLARE v_seq, v_next BIGINT UNSIGNED;
  DECLARE v_guards, v_process, v_heartbeat BIGINT;
  DECLARE v_connection BIGINT DEFAULT 0;
  DECLARE v_mine VARCHAR(255) DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SELECT 1 INTO v_done FROM DUAL WHERE {autocommit};
  SET v_done = 0;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT id, seq, held, shared, queued, guards, expires_at INTO v_id, v_seq, v_held, v_shared, v_queued, v_guards, v_ends
    FROM {tickets} WHERE entry = p_name FOR UPDATE;
  SET v_now = UTC_TIMESTAMP(6);
  IF v_held = 1 AND v_shared = 0 AND v_ends > v_now AND v_guards = 0 THEN
    IF v_id = p_id THEN
      SELECT t.entry, t.seq, t.id, t.process, t.shared, p.heartbeat, p.alive_until, IF(p.server = ({server}), p.connection, 0)
        INTO v_entry, v_next, v_next_id, v_process, v_next_shared, v_heartbeat, v_alive_until, v_connection
        FROM {tickets} AS t FORCE INDEX (queue) LEFT JOIN {processes} AS p ON p.id = t.process
        WHERE t.name = p_name AND t.seq > v_seq ORDER BY t.seq LIMIT 1;
      IF v_entry IS NULL THEN
        DELETE FROM {tickets} WHERE entry = p_name;
        SET v_done = 1;
      ELSEIF v_next_shared = 0 AND v_alive_until > v_now THEN
        DELETE FROM {tickets} WHERE entry = p_name;
        UPDATE {tickets} SET entry = p_name, queued = 1, held = 1, provisional = 1, since = v_now, heartbeat = v_heartbeat,
          expires_at = LEAST(v_now + INTERVAL ttl MICROSECOND, v_alive_until)
          WHERE entry = v_entry AND held = 0;
        SET v_done = IF(ROW_COUNT() = 1, 1, 0);
      END IF;
    ELSE
      SELECT t.entry INTO v_entry FROM {tickets} AS t STRAIGHT_JOIN {processes} AS p ON p.id = t.process
        WHERE t.entry = p_entry AND t.id = p_id AND t.name = p_name AND t.held = 0 AND p.alive_until > v_now;
      IF v_entry IS NOT NULL THEN
        DELETE FROM {tickets} WHERE entry = p_entry;
        SET v_done = 1;
      END IF;
    END IF;
  END IF;
  IF v_done = 0 THEN
    ROLLBACK;
  ELSE
    COMMIT;
  END IF;
  IF v_done = 1 AND v_process = p_process THEN
    SET v_mine = CONCAT('g ', v_next_id, ' ', v_next, ' ', v_heartbeat);
  ELSEIF v_done = 1 AND v_connection > 0 THEN
    BEGIN
      DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN END;
      DECLARE CONTINUE HANDLER FOR 1095 UPDATE {processes} SET connection = -1 WHERE id = v_process AND connection = v_connection;
      KILL QUERY v_connection;
    END;
  END IF;
  SELECT v_done, 0, v_mine AS mine;
END
