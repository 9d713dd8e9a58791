-- Reads which of these keys are neither revoked nor expired. $1 ids
select k.id
from grns.api_keys k
where k.id = any ($1::text[]) and grns.key_state(k.expires_at, k.revoked_at) = 'valid'
