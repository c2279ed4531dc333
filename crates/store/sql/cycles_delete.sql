-- Reconcile cycles beyond the retention horizon.
DELETE FROM reconcile_cycles
WHERE started_at < $1
