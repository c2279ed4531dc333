-- A first look begins: should its server die with it, this stays.
INSERT INTO session_trials (session_id, begun)
VALUES ($1, 1)
ON CONFLICT (session_id) DO UPDATE SET begun = session_trials.begun + 1
