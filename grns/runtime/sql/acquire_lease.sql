-- Makes an owner the leader under a new epoch, unless another one leads. $1 name, $2 owner, $3 lease in seconds
update grns.leases l
set epoch = l.epoch + 1, owner = $2, until = now() + $3::double precision * interval '1 second'
where l.name = $1 and (l.until < now() or l.owner = $2)
returning l.epoch
