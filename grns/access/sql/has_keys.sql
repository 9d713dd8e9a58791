-- Says whether anybody has ever made a key.
select exists (select from grns.api_keys) as has_keys
