-- The same columns by our ids, terminated rows too. 100 at a time, missing ones are NULL. COALESCE keeps
-- the planner from taking the index on the provider, which holds nearly every row.
SELECT id, provider_identity, sandbox_id, task_id, state, created_at, started_at, terminated_at, exit_code,
       termination_reason, suspected_at, desired, desired_at, desired_reason, stop_grace_seconds,
       stop_seen_at, stopping_at, stop_confirmed_at, stop_attempts, stop_attempted_at, stop_error, create_attempts,
       create_attempted_at, last_heartbeat_at, silent_alerted_at, health_status, keep, region,
       cpu_cores, memory_mb, gpu_type, cost_accrued_usd, cost_rate_per_hour, cost_source
FROM containers LEFT JOIN container_vitals ON container_id = id
WHERE COALESCE(provider, '') = $1
  AND id IN ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
             $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41,
             $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59,
             $60, $61, $62, $63, $64, $65, $66, $67, $68, $69, $70, $71, $72, $73, $74, $75, $76, $77,
             $78, $79, $80, $81, $82, $83, $84, $85, $86, $87, $88, $89, $90, $91, $92, $93, $94, $95,
             $96, $97, $98, $99, $100, $101)
