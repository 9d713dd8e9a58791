"""`grns db …`: the schema, brought up to date."""

from __future__ import annotations

import asyncio

import click

from grns.cli import failure
from grns.cli.group import Group
from grns.cli.output import Output, fields, output_option


@click.group(cls=Group)
def db() -> None:
    """Create and upgrade the database schema."""


@db.command()
@click.option("--sql", "is_printed", is_flag=True, help="Print the SQL and run nothing.")
def upgrade(is_printed: bool) -> None:
    """Run missing revisions, and set the payload limit of SQL submissions.

    It is safe to repeat. Run it again after you change GRNS_PAYLOAD_MAX_BYTES.
    """
    from grns.postgres import migrate
    from grns.settings import load

    if is_printed:
        click.echo(migrate.script(payload_bytes=load().payload_max_bytes), nl=False)
        return
    before, after, obstacle = asyncio.run(_upgrade())
    failure.note(f"the schema is at {after}" + (" already" if before == after else ""))
    if obstacle is not None:
        failure.note(f"the database does not keep workspaces apart, grns alone does: {obstacle}")


async def _upgrade() -> tuple[str | None, str | None, str | None]:
    from grns.access import isolation as access
    from grns.cli.session import reading
    from grns.postgres import migrate
    from grns.settings import load

    settings = load()
    url = settings.require_database_url()
    before = await migrate.current(url)
    await migrate.upgrade(url, payload_bytes=settings.payload_max_bytes)
    async with reading() as session:
        return before, await migrate.current(url), await access.obstacle(session.database)


@db.command()
@output_option
def current(out: Output) -> None:
    """Show the schema's revision. Exit code 1: this version of grns needs another one."""
    from grns.postgres import migrate
    from grns.settings import load

    needed = migrate.newest()
    found = asyncio.run(migrate.current(load().require_database_url()))
    record = {"current": found, "needed": needed, "is_current": found == needed}
    out.record(record, lambda: fields([("current", found or "none"), ("needed", needed)]))
    if found != needed:
        failure.say("the schema is not the one that this version of grns needs", "grns db upgrade")
        raise click.exceptions.Exit(failure.FAILED)
