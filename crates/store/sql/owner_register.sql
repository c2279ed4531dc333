-- One running server process.
INSERT INTO owners (id, home_id, host, boot_id, epoch, started_at, lease_until, ended_at, version)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
