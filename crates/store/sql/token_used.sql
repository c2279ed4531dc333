-- When it was last presented. Never back in time: two servers may tell it in any order.
UPDATE tokens SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)
