-- Foreign sandboxes that were alive at the last look.
SELECT provider, sandbox_id, provider_identity, instance_id, container_id, task_id, name, created_at,
       started_at, cpu_cores, memory_mb, gpu_type, region, command, labels, first_seen_at, last_seen_at,
       gone_at
FROM foreign_sandboxes
WHERE gone_at IS NULL
  AND (CAST($1 AS TEXT) IS NULL OR provider = $1)
  AND (CAST($2 AS TEXT) IS NULL OR instance_id = $2)
ORDER BY provider, first_seen_at, sandbox_id
