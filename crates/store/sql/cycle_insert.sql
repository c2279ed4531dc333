-- One pass of the reconciler over one provider, so that its status outlives it.
INSERT INTO reconcile_cycles (
    provider, trigger, started_at, finished_at, duration_ms, outcome, error, sandboxes, db_rows, suspected,
    orphans, adopted, started, terminated, corrections, foreign_count, actions, failures, waiting,
    next_at
) VALUES (
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20
)
RETURNING id
