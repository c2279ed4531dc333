-- Where the tail ends now.
SELECT COALESCE(MAX(id), 0)
FROM events
-- postgres: WHERE txid < pg_snapshot_xmin(pg_current_snapshot())
