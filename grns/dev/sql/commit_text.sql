-- Commits a transaction that leaves nothing but a text in the server's write-ahead log. $1 text
select pg_logical_emit_message(true, 'grns', $1::text)::text as place
