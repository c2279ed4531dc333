-- Where the heartbeats of a new container will be noted: until then it was never heard.
INSERT INTO container_vitals (container_id)
VALUES ($1)
