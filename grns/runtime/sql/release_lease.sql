-- Ends a leader's lease, so that a standby need not wait. $1 name, $2 epoch
update grns.leases l set until = '-infinity', owner = null
where l.name = $1 and l.epoch = $2
returning l.epoch
