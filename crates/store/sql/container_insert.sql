-- A new container. Every column that is not named here begins at its default: wanted running, never heard.
INSERT INTO containers (
    id, provider, provider_identity, sandbox_id, instance_id, name, worker_id, task_id, session_id, state,
    created_at, started_at, terminated_at, exit_code, termination_reason, suspected_at,
    stop_confirmed_at, create_attempts, create_attempted_at, cpu_cores, memory_mb, gpu_type, region,
    cost_accrued_usd, cost_rate_per_hour, cost_source, image, command, labels, keep, spec, metadata,
    updated_at
) VALUES (
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
    $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33
)
