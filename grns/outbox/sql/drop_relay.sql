-- Gives the lead up, so that a standby need not wait. $1 epoch
update grns.relay_cursor c set lease_until = '-infinity', owner = null, updated_at = now()
where c.id = 1 and c.epoch = $1
returning c.epoch
