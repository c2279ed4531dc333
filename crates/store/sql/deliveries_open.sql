-- How many deliveries are not over.
SELECT COUNT(*)
FROM deliveries
WHERE state IN ('pending', 'sending')
