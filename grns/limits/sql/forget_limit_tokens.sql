-- Forgets keys of which any number may begin again. $1 epoch, $2 workspaces, $3 keys
delete from grns.limit_tokens k
using unnest($2::text[], $3::text[]) as f (workspace, key), grns.leases l
where k.workspace = f.workspace and k.key = f.key and l.name = 'admitter' and l.epoch = $1
