-- idx_heartbeats_container_time begins with the container and serves whatever asks for it alone. Each index by
-- container costs every heartbeat a page of its own in the log; this one was a third of all that is written.
DROP INDEX idx_heartbeats_container;
