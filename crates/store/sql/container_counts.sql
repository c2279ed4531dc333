-- Counts and cost by state and health, for the totals.
SELECT state, health_status, COUNT(*), COALESCE(SUM(cost_accrued_usd), 0)
FROM containers
GROUP BY state, health_status
