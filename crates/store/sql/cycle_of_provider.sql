-- The latest pass over one provider.
SELECT id, provider, trigger, started_at, finished_at, duration_ms, outcome, error, sandboxes, db_rows,
       suspected, orphans, adopted, started, terminated, corrections, foreign_count, actions, failures,
       waiting, next_at
FROM reconcile_cycles
WHERE provider = $1
ORDER BY id DESC
LIMIT 1
