-- Who leads.
SELECT owner_id, epoch, lease_until
FROM leadership
