//! From the home's own SQLite file to a shared PostgreSQL, with sandboxes running all the while.
