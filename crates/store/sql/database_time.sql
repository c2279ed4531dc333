-- What time it is by the database's own clock, as text: UTC without a zone, or with the zone that it is in.
SELECT CAST(CURRENT_TIMESTAMP AS TEXT)
