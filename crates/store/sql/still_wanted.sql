-- Nobody has asked for its end meanwhile.
SELECT 1 FROM containers WHERE id = $1 AND desired = 'running'
-- postgres: FOR NO KEY UPDATE
