-- A sandbox of another instance has ended.
UPDATE foreign_sandboxes
SET gone_at = $3
WHERE provider = $1 AND sandbox_id = $2 AND gone_at IS NULL
