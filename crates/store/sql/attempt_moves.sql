-- A container whose creation nobody can tell about has a successor: the attempt goes with it.
UPDATE attempts
SET container_id = CASE WHEN container_id = $1 THEN $2 ELSE container_id END,
    verify_container_id = CASE WHEN verify_container_id = $1 THEN $2 ELSE verify_container_id END
WHERE container_id = $1 OR verify_container_id = $1
