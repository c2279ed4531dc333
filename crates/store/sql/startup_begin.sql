-- A server begins to start.
INSERT INTO startups (owner_id, host, version, started_at) VALUES ($1, $2, $3, $4)
