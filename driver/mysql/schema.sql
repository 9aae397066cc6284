-- The lines of locker. One row of {tickets} is one ticket; its number is the
-- place in line and the fencing token.
--
-- place  the name, for the one row of a line that stands at its gate: the first
--        that came, or the mere gate that it left (then name is NULL). While a line
--        has tickets it has a gate, so a free name is one that can be inserted.
--        Those behind have a byte 255, which no name begins with, and their ID.
-- sole   the name, on an exclusive holder: two of one name cannot be.
-- line   the line of a name in order.
CREATE TABLE IF NOT EXISTS {tickets} (
  place VARBINARY(512) NOT NULL,
  token BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  name VARBINARY(512) NULL,
  id VARBINARY(64) NULL,
  owner VARBINARY(2048) NOT NULL,
  note VARBINARY(2048) NOT NULL,
  shared TINYINT NOT NULL,
  permits BIGINT NOT NULL,
  held TINYINT NOT NULL,
  knocks BIGINT NOT NULL DEFAULT 0,
  since DATETIME(6) NOT NULL,
  expires DATETIME(6) NOT NULL,
  sole VARBINARY(512) GENERATED ALWAYS AS (IF(held = 1 AND shared = 0, name, NULL)) STORED,
  PRIMARY KEY (place),
  UNIQUE KEY token (token),
  UNIQUE KEY sole (sole),
  UNIQUE KEY line (name, token)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='locker: tickets, schema 1';

-- Whoever takes a ticket locks the slot that its name hashes to until the
-- ticket can be seen by all: so numbers become visible in their order.
CREATE TABLE IF NOT EXISTS {slots} (
  slot SMALLINT UNSIGNED NOT NULL,
  PRIMARY KEY (slot)
) ENGINE=InnoDB COMMENT='locker: slots, schema 1';

-- Rows that AcquireTx locks; unlocked ones are swept away.
CREATE TABLE IF NOT EXISTS {tx} (
  name VARBINARY(512) NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='locker: transactions, schema 1';

INSERT IGNORE INTO {slots} (slot) VALUES {allslots};
