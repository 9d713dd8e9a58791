-- Reads whom Postgres takes us for, as it is written in a statement.
select quote_ident(current_user) as role
