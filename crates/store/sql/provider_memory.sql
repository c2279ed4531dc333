-- What the reconciler remembers of a provider.
SELECT identity, unreachable_since, breaker_since, breaker_agreed, breaker_agreed_at
FROM providers
WHERE name = $1
