-- Reads the secrets that claim tokens are signed with: the latest and the one before it.
select k.id, k.secret from grns.token_keys k order by k.id desc limit 2
