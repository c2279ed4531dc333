-- Exactly the columns that the reconciler owns, if the state is still the one that it decided from.
UPDATE containers
SET state = $3, provider_identity = $4, sandbox_id = $5, started_at = $6, terminated_at = $7,
    exit_code = $8, termination_reason = $9, stop_confirmed_at = $10, region = $11, cpu_cores = $12,
    memory_mb = $13, gpu_type = $14, cost_accrued_usd = $15, cost_rate_per_hour = $16,
    cost_source = $17, updated_at = $18
WHERE id = $1 AND state = $2
