#!/usr/bin/env bash
# Run once by the image of Postgres: the role of grns owns its database and is no superuser.
set -euo pipefail
psql --set=ON_ERROR_STOP=1 --username=postgres --dbname=postgres --set=password="$GRNS_POSTGRES_PASSWORD" <<'SQL'
create role grns login noinherit password :'password';
create role grns_tenant nologin;
grant grns_tenant to grns;
create database grns owner grns;
\connect grns
alter schema public owner to grns;
SQL
