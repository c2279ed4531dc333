-- Takes the lead in the next epoch, which fences every earlier leader. Refused while another owner that
-- has not ended holds an unexpired lease, unless forced ($4).
INSERT INTO leadership (id, owner_id, epoch, lease_until)
VALUES (1, $1, 1, $2)
ON CONFLICT (id) DO UPDATE SET
    owner_id = excluded.owner_id, epoch = leadership.epoch + 1, lease_until = excluded.lease_until
WHERE leadership.owner_id = excluded.owner_id
   OR leadership.lease_until <= $3
   OR CAST($4 AS BIGINT) = 1
   OR EXISTS (SELECT 1 FROM owners WHERE owners.id = leadership.owner_id AND owners.ended_at IS NOT NULL)
RETURNING epoch
