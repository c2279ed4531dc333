-- Text compares bytewise in every table, whatever the locale of the database: pages are found by it, and joins need one
-- collation on both sides to use an index.
ALTER TABLE tokens
    ALTER COLUMN id TYPE TEXT COLLATE "C",
    ALTER COLUMN subject TYPE TEXT COLLATE "C",
    ALTER COLUMN role TYPE TEXT COLLATE "C",
    ALTER COLUMN container_id TYPE TEXT COLLATE "C",
    ALTER COLUMN hash TYPE TEXT COLLATE "C",
    ALTER COLUMN created_at TYPE TEXT COLLATE "C",
    ALTER COLUMN created_by TYPE TEXT COLLATE "C",
    ALTER COLUMN expires_at TYPE TEXT COLLATE "C",
    ALTER COLUMN revoked_at TYPE TEXT COLLATE "C",
    ALTER COLUMN last_used_at TYPE TEXT COLLATE "C";
ALTER TABLE jobs
    ALTER COLUMN id TYPE TEXT COLLATE "C",
    ALTER COLUMN container_id TYPE TEXT COLLATE "C",
    ALTER COLUMN name TYPE TEXT COLLATE "C",
    ALTER COLUMN engine TYPE TEXT COLLATE "C",
    ALTER COLUMN origin_id TYPE TEXT COLLATE "C",
    ALTER COLUMN created_at TYPE TEXT COLLATE "C",
    ALTER COLUMN created_by TYPE TEXT COLLATE "C",
    ALTER COLUMN status TYPE TEXT COLLATE "C",
    ALTER COLUMN status_at TYPE TEXT COLLATE "C",
    ALTER COLUMN status_reason TYPE TEXT COLLATE "C",
    ALTER COLUMN activity TYPE TEXT COLLATE "C",
    ALTER COLUMN waiting_reason TYPE TEXT COLLATE "C",
    ALTER COLUMN waiting_since TYPE TEXT COLLATE "C",
    ALTER COLUMN agent_session TYPE TEXT COLLATE "C",
    ALTER COLUMN heartbeat_at TYPE TEXT COLLATE "C",
    ALTER COLUMN reattached_at TYPE TEXT COLLATE "C",
    ALTER COLUMN ended_at TYPE TEXT COLLATE "C",
    ALTER COLUMN cleanup_at TYPE TEXT COLLATE "C",
    ALTER COLUMN cleaned_at TYPE TEXT COLLATE "C";
ALTER TABLE startups
    ALTER COLUMN owner_id TYPE TEXT COLLATE "C",
    ALTER COLUMN host TYPE TEXT COLLATE "C",
    ALTER COLUMN version TYPE TEXT COLLATE "C",
    ALTER COLUMN started_at TYPE TEXT COLLATE "C",
    ALTER COLUMN finished_at TYPE TEXT COLLATE "C",
    ALTER COLUMN steps TYPE TEXT COLLATE "C";
