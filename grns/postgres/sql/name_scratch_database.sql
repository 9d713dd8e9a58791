-- Puts together what makes and what drops a database of this name: neither runs inside a function. $1 name
select format('create database %I template template0', $1::text) as make_statement,
    format('drop database if exists %I with (force)', $1::text) as drop_statement
