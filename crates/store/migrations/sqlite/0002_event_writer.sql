-- Who wrote an event: the owner whose fence the writing transaction was guarded by, and the epoch in which it
-- led. NULL owner: nobody's fence (a person asked). NULL epoch: written for its own home, whoever led.
ALTER TABLE events ADD COLUMN owner_id TEXT;
ALTER TABLE events ADD COLUMN epoch BIGINT;
