-- Makes a new secret for claim tokens, and deletes all but that and the one before it.
with made as (
    insert into grns.token_keys default values returning id
),
deleted as (
    delete from grns.token_keys k
    where k.id not in (select o.id from grns.token_keys o order by o.id desc limit 1)
)
select m.id from made m
