-- Who wrote an event: the owner whose fence the writing transaction was guarded by, and the epoch in which it
-- led. NULL owner: nobody's fence (a person asked). NULL epoch: written for its own home, whoever led.
ALTER TABLE events ADD COLUMN owner_id TEXT COLLATE "C";
ALTER TABLE events ADD COLUMN epoch BIGINT;

-- Makes the end of an owner part of a key, as the epoch of the lead is: whoever ends an owner waits for its
-- guarded writes under way (which read the row FOR KEY SHARE), and a renewal of its lease waits for none.
CREATE UNIQUE INDEX idx_owners_ended ON owners(id, ended_at);
