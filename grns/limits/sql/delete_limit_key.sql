-- Takes the numbers of one key back: those of the limit count. $1 workspace, $2 name, $3 key
delete from grns.limit_keys k where k.workspace = $1 and k.name = $2 and k.key = $3 returning k.key
