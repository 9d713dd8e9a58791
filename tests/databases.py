"""Databases for tests, each as new: emptied and used again, where a test has left the schema as it was.

To make one takes several times as long as a usual test.
"""

from __future__ import annotations

import uuid

import asyncpg

from grns.local import LocalPostgres
from grns.store import migrate

TEMPLATE = "grns_template"

# All that a test might leave and emptying does not remove: anything of the schema, settings, statistics.
_SHAPE = """
    select md5(string_agg(thing, ' ' order by thing)) from (
        select format('%s %s %s %s %s', c.oid::regclass, c.relkind, c.reloptions, c.relrowsecurity,
            pg_get_expr(c.relpartbound, c.oid)) as thing
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')
        union all
        select format('%s %s %s %s %s', a.attrelid::regclass, a.attname, a.atttypid::regtype, a.attnotnull,
            pg_get_expr(d.adbin, d.adrelid))
        from pg_attribute a join pg_class c on c.oid = a.attrelid
        join pg_namespace n on n.oid = c.relnamespace
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')
        union all
        select format('%s %s', c.conrelid::regclass, pg_get_constraintdef(c.oid))
        from pg_constraint c join pg_namespace n on n.oid = c.connamespace
        where n.nspname not in ('pg_catalog', 'information_schema')
        union all
        select format('%s %s %s', t.tgrelid::regclass, t.tgname, t.tgenabled) from pg_trigger t
        union all
        select format('%s %s', p.oid::regprocedure, md5(p.prosrc)) from pg_proc p
        join pg_namespace n on n.oid = p.pronamespace
        where n.nspname not in ('pg_catalog', 'information_schema')
        union all
        select format('%s %s', s.setrole, s.setconfig) from pg_db_role_setting s
        join pg_database d on d.oid = s.setdatabase where d.datname = current_database()
        union all
        select format('analyzed %s', s.starelid::regclass) from pg_statistic s where s.starelid >= 16384
        union all
        select format('%s %s', n.nspname, n.nspacl) from pg_namespace n where n.nspname not like 'pg_temp%'
            and n.nspname not like 'pg_toast_temp%'
        union all
        select format('%s %s', i.inhrelid::regclass, i.inhdetachpending) from pg_inherits i
    ) as things
"""

_FILLED = """
    select c.oid::regclass::text as name from pg_class c
    where c.relnamespace = 'grns'::regnamespace and c.relkind = 'r' and pg_relation_size(c.oid) > 0
        and c.relname <> 'schema_version'
"""
# The tables that a migration has put their one row into.
_SINGLES = ("grns.relay_cursor", "grns.reaper_state", "grns.server")

_SEND_AWAY = """
    select pg_terminate_backend(pid, 10000) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


class Databases:
    """The databases of one server that no test uses now."""

    def __init__(self, server: LocalPostgres) -> None:
        self._server = server
        self._free: list[str] = []
        self._shape: str | None = None

    def url(self, name: str) -> str:
        """Return the URL of a database."""
        return self._server.admin_url.rsplit("/", 1)[0] + "/" + name

    async def prepare(self) -> None:
        """Make the template, migrated."""
        await self._administer(f"create database {TEMPLATE}")
        await migrate.upgrade(self.url(TEMPLATE))

    async def take(self) -> str:
        """Return the name of one that is as new."""
        if self._free:
            return self._free.pop()
        name = f"test_{uuid.uuid4().hex}"
        await self._administer(f"create database {name} template {TEMPLATE}")
        if self._shape is None:
            connection = await asyncpg.connect(self.url(name))
            self._shape = await connection.fetchval(_SHAPE)
            await connection.close()
        return name

    async def give(self, name: str) -> None:
        """Take one back: emptied, or dropped where it is not what it was."""
        if await self._empty(name):
            self._free.append(name)
        else:
            await self._administer(f"drop database if exists {name} with (force)")

    async def _empty(self, name: str) -> bool:
        try:
            connection = await asyncpg.connect(self.url(name))
        except asyncpg.PostgresError:  # it is gone, or lets nobody in
            return False
        try:
            await connection.execute(_SEND_AWAY)
            if await connection.fetchval(_SHAPE) != self._shape:
                return False
            filled = [row["name"] for row in await connection.fetch(_FILLED)]
            async with connection.transaction():
                await connection.execute(f"truncate {', '.join(filled)} restart identity")
                await connection.execute("alter sequence grns.events_seq restart")
                for single in _SINGLES:
                    await connection.execute(f"insert into {single} default values")
            return True
        finally:
            await connection.close()

    async def _administer(self, statement: str) -> None:
        connection = await asyncpg.connect(self._server.admin_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
