-- Inserts the rows that lines of an archive have of a table. $1 the table, $2 lines, as a JSON array
select grns.restore_rows($1, $2::text::json)
