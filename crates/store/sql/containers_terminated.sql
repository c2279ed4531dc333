-- How many containers are over, and what they have cost.
SELECT COUNT(*), COALESCE(SUM(cost_accrued_usd), 0)
FROM containers
WHERE state = 'terminated'
