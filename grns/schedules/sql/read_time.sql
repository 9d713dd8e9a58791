-- Reads the time of this transaction, by the database's clock.
select now() as now
