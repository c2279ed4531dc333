-- What every heartbeat changes, apart from the wide row of its container: a page of the log holds dozens of these
-- and four of those, so a commit of many heartbeats writes a tenth of the bytes.
CREATE TABLE container_vitals (
    container_id      TEXT PRIMARY KEY REFERENCES containers(id) ON DELETE CASCADE,
    last_heartbeat_at TEXT,
    cpu_percent       DOUBLE PRECISION,
    memory_percent    DOUBLE PRECISION,
    memory_used_mb    BIGINT,
    disk_percent      DOUBLE PRECISION,
    uptime_seconds    BIGINT
) WITHOUT ROWID;
INSERT INTO container_vitals
SELECT id, last_heartbeat_at, cpu_percent, memory_percent, memory_used_mb, disk_percent, uptime_seconds
FROM containers;
ALTER TABLE containers DROP COLUMN last_heartbeat_at;
ALTER TABLE containers DROP COLUMN cpu_percent;
ALTER TABLE containers DROP COLUMN memory_percent;
ALTER TABLE containers DROP COLUMN memory_used_mb;
ALTER TABLE containers DROP COLUMN disk_percent;
ALTER TABLE containers DROP COLUMN uptime_seconds;

-- Raw heartbeats are only appended, and read by their time. The index by container made every one of them change a
-- page somewhere in the middle; whoever asks for one container's reads a span of time instead.
DROP INDEX idx_heartbeats_container_time;
