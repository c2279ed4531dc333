-- Every owner, newest last.
SELECT id, home_id, host, boot_id, epoch, started_at, lease_until, ended_at, version
FROM owners
ORDER BY started_at, id
