-- Notes how far a replay is, if the epoch is still ours and the replay is not withdrawn. $1 epoch, $2 its number,
-- $3 first number of its stretch, $4 all up to here is acknowledged, $5 last number, $6 stored, $7 duplicates
update grns.replays r
set started_at = coalesce(r.started_at, now()), first_seq = $3, after_seq = $4, up_to_seq = $5, stored = $6,
    duplicates = $7, ended_at = case when $4::bigint >= $5::bigint then now() end, outcome = case when $4::bigint >= $5::bigint then 'done' end
where r.id = $2 and r.ended_at is null
    and exists (select from grns.leases l where l.name = 'relay' and l.epoch = $1)
returning r.id
