-- Returns whether a key was ever created.
select exists (select from grns.api_keys) as has_keys
