-- Reads the server's clock.
select clock_timestamp() as at
