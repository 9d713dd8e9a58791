-- Closes messages that belong to no task. $1 ids, $2 new state
update grns.dead_letters d set state = $2, updated_at = now()
where d.id = any($1::uuid[]) and d.state = 'new'
returning d.id
