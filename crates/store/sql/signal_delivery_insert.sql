-- Which signal ended which wait: one at most.
INSERT INTO signal_deliveries (wait_id, signal_id)
VALUES ($1, $2)
