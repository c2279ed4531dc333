-- What the reconciler remembers of a provider, when it is not what it remembered before.
INSERT INTO providers (name, identity, unreachable_since, breaker_since, breaker_agreed, breaker_agreed_at,
                       updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (name) DO UPDATE SET
    identity = excluded.identity, unreachable_since = excluded.unreachable_since,
    breaker_since = excluded.breaker_since, breaker_agreed = excluded.breaker_agreed,
    breaker_agreed_at = excluded.breaker_agreed_at, updated_at = excluded.updated_at
