-- What every heartbeat changes, apart from the wide row of its container: PostgreSQL writes a changed row anew.
-- The free space keeps the new version in the page of the old one.
CREATE TABLE container_vitals (
    container_id      TEXT COLLATE "C" PRIMARY KEY REFERENCES containers(id) ON DELETE CASCADE,
    last_heartbeat_at TEXT COLLATE "C",
    cpu_percent       DOUBLE PRECISION,
    memory_percent    DOUBLE PRECISION,
    memory_used_mb    BIGINT,
    disk_percent      DOUBLE PRECISION,
    uptime_seconds    BIGINT
) WITH (fillfactor = 50);
INSERT INTO container_vitals
SELECT id, last_heartbeat_at, cpu_percent, memory_percent, memory_used_mb, disk_percent, uptime_seconds
FROM containers;
ALTER TABLE containers
    DROP COLUMN last_heartbeat_at, DROP COLUMN cpu_percent, DROP COLUMN memory_percent, DROP COLUMN memory_used_mb,
    DROP COLUMN disk_percent, DROP COLUMN uptime_seconds;
-- idx_heartbeats_container_time begins with the container and serves whatever asks for it alone.
DROP INDEX idx_heartbeats_container;
