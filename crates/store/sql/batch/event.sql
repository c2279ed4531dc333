-- Lines of the history, all at once. $14 is the place of each in the block of ids that reserve_events() gave
-- to this transaction. Gives the place in the batch and the id of each.
WITH lines AS (
    SELECT *
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[], $6::TEXT[], $7::TEXT[], $8::TEXT[],
                $9::TEXT[], $10::TEXT[], $11::TEXT[], $12::TEXT[], $13::BIGINT[], $14::BIGINT[]) WITH ORDINALITY
         AS l (at, event_type, container_id, worker_id, task_id, session_id, old_value, new_value, message,
               details, source, owner_id, epoch, slot, ord)
), base AS (
    SELECT current_setting('parhelia.events_from')::BIGINT AS id
), written AS (
    INSERT INTO events (id, timestamp, event_type, container_id, worker_id, task_id, session_id, old_value,
                        new_value, message, details, source, owner_id, epoch)
    SELECT base.id + slot, at, event_type, container_id, worker_id, task_id, session_id, old_value, new_value,
           message, details, source, owner_id, epoch
    FROM lines, base
)
SELECT lines.ord, base.id + lines.slot
FROM lines, base
