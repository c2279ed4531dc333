-- Whether the database answers.
SELECT COUNT(*)
FROM leadership
