-- Adds one partition to the end of the log. $1 rows
select grns.add_log_partition($1) as name
