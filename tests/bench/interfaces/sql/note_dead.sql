-- Notes which tasks of the first workspace are dead and wait for somebody.
create unlogged table public.dead_before as
select t.id, t.version, t.attempt from grns.tasks t
where t.workspace = 'default' and t.status = 'dead' and t.finished_at is not null and t.discarded_at is null
