-- Lists the log's partitions, oldest first: whether it lies ahead, whether relay, counter, text indexer and follower are past it, how old its
-- newest row is, the highest number given out so far, and the statements that take it away.
select p.name, p.lower_seq, p.upper_seq, p.is_detaching, s.last_value as high,
    p.upper_seq - 1 <= least(c.low, k.low, x.low, f.low) as is_done_with,
    (select extract(epoch from now() - e.created_at)::double precision from grns.events e
        where e.seq >= p.lower_seq and e.seq < p.upper_seq order by e.seq desc limit 1) as newest_age_seconds,
    p.lower_seq > s.last_value as is_ahead,
    format('alter table grns.events detach partition grns.%I %s', p.name,
        case when p.is_detaching then 'finalize' else 'concurrently' end) as detach_statement,
    format('drop table grns.%I', p.name) as drop_statement
from grns.log_partitions p, grns.relay_cursor c, grns.count_cursor k, grns.text_cursor x, grns.follow_cursor f, grns.events_seq s
order by p.lower_seq
