-- A sandbox of another instance, as it was last seen.
INSERT INTO foreign_sandboxes (
    provider, sandbox_id, provider_identity, instance_id, container_id, task_id, name, created_at,
    started_at, cpu_cores, memory_mb, gpu_type, region, command, labels, first_seen_at, last_seen_at,
    gone_at
) VALUES (
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16, NULL
)
ON CONFLICT (provider, sandbox_id) DO UPDATE SET
    provider_identity = excluded.provider_identity, instance_id = excluded.instance_id,
    container_id = excluded.container_id, task_id = excluded.task_id, name = excluded.name,
    created_at = excluded.created_at, started_at = excluded.started_at, cpu_cores = excluded.cpu_cores,
    memory_mb = excluded.memory_mb, gpu_type = excluded.gpu_type, region = excluded.region,
    command = excluded.command, labels = excluded.labels, last_seen_at = excluded.last_seen_at,
    gone_at = NULL
