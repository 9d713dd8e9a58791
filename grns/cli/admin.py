"""`grns admin db`, `config` and `schema`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from pydantic import SecretStr
from pydantic_settings import EnvSettingsSource, InitSettingsSource, TomlConfigSettingsSource

from grns.access import isolation
from grns.cli import failure
from grns.cli.group import CliState, Group
from grns.cli.output import Column, Output, fields, jsonable, output_option
from grns.cli.session import CliSession, with_session
from grns.model.text import counted
from grns.postgres import migrate
from grns.schemas import export as exporter
from grns.settings import Settings, load

_HIDDEN = "***"
_SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&#]*")


@click.group(cls=Group)
def db() -> None:
    """Create and upgrade the database schema."""


@db.command(examples=["grns admin db upgrade", "grns admin db upgrade --sql > upgrade.sql"])
@click.option("--sql", "is_printed", is_flag=True, help="Print the SQL and run nothing.")
def upgrade(is_printed: bool) -> None:
    """Run missing revisions, and set the payload limit of SQL submissions.

    It is safe to repeat. Run it again after you change GRNS_PAYLOAD_MAX_BYTES.
    """
    if is_printed:
        click.echo(migrate.script(payload_bytes=load().payload_max_bytes), nl=False)
    else:
        _upgrade()


@with_session("none")
async def _upgrade(session: CliSession) -> None:
    settings = session.app.settings
    url = settings.require_database_url()
    before = await migrate.current(url)
    await migrate.upgrade(url, payload_bytes=settings.payload_max_bytes)
    after = await migrate.current(url)
    failure.note(f"the schema is at {after}" + (" already" if before == after else ""))
    await session.database.connect()
    obstacle = await isolation.obstacle(session.database)
    if obstacle is not None:
        failure.note(f"the database does not isolate workspaces, only grns does: {obstacle}")


@db.command(examples=["grns admin db current", "grns admin db current -o json"])
@output_option
@with_session("none")
async def current(session: CliSession, out: Output) -> None:
    """Show the schema's revision. Exit code 1: this version of grns needs another one."""
    needed = migrate.newest()
    revision = await migrate.current(session.app.settings.require_database_url())
    record = {"current": revision, "needed": needed, "is_current": revision == needed}
    out.record(record, lambda: fields([("current", revision or "none"), ("needed", needed)]))
    if revision != needed:
        failure.print_error("this version of grns needs another schema", "grns admin db upgrade")
        raise click.exceptions.Exit(failure.FAILED)


@click.group(cls=Group)
def schema() -> None:
    """Write the schemas of all messages."""


@schema.command(examples=["grns admin schema export", "grns admin schema export schemas --check"])
@click.argument(
    "directory", metavar="[DIR]", type=click.Path(file_okay=False, path_type=Path), default="schemas"
)
@click.option("--check", "is_check", is_flag=True, help="Write nothing. Exit with 1 if a file is stale.")
def export(directory: Path, is_check: bool) -> None:
    """Write a JSON Schema for each kind and an AsyncAPI document to DIR (schemas)."""
    names = exporter.stale(directory) if is_check else exporter.write(directory)
    for name in names:
        click.echo(directory / name)
    if is_check and names:
        hint = f"grns admin schema export {directory}"
        failure.print_error(f"{directory}: {counted(len(names), 'stale file')}", hint)
        raise click.exceptions.Exit(failure.FAILED)
    failure.note(f"{directory} is up to date")


@click.group(cls=Group)
def config() -> None:
    """Show the settings and where they come from."""


@config.command(examples=["grns admin config show", "grns admin config show --origin -o json"])
@click.option("--origin", "has_origin", is_flag=True, help="Also show the source of each value.")
@output_option
@click.pass_context
def show(ctx: click.Context, out: Output, has_origin: bool) -> None:
    """Show every setting, without secrets."""
    settings = load()
    sources = origins(settings, flags=frozenset(ctx.ensure_object(CliState).flags))
    rows = [
        {
            "name": name,
            "value": shown(name, getattr(settings, name)),
            "origin": sources[name],
            "description": field.description,
        }
        for name, field in type(settings).model_fields.items()
    ]
    columns = [
        Column("SETTING", "name"),
        Column("VALUE", "value", may_shrink=True),
        *([Column("FROM", "origin")] if has_origin else []),
        Column("DESCRIPTION", "description", may_shrink=True, spare=1),
    ]
    out.rows(rows, columns)


def origins(settings: Settings, *, flags: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return where each setting's value comes from: the first source that has one."""
    kind = type(settings)
    given, environment = InitSettingsSource(kind, init_kwargs={}), EnvSettingsSource(kind)
    sources = kind.settings_customise_sources(kind, given, environment, environment, environment)
    origin = dict.fromkeys(kind.model_fields, "default")
    for source in reversed(sources):
        origin |= {name: _origin(source, name, flags) for name in source() if name in origin}
    return origin


def _origin(source: Any, name: str, flags: frozenset[str]) -> str:
    if isinstance(source, TomlConfigSettingsSource):
        return f"file {source.toml_file_path}"
    if not isinstance(source, EnvSettingsSource):
        return f"env GRNS_{name.upper()}_FILE"
    # A flag is handed on as environment, so that it reaches the processes that a command starts.
    return f"flag --{name.replace('_', '-')}" if name in flags else f"env GRNS_{name.upper()}"


def shown(name: str, value: object) -> object:
    """Return a setting's value without secrets."""
    if isinstance(value, SecretStr):
        # Only the brokers are a list: a comma in the database's URL may be one of its password.
        urls = value.get_secret_value().split(",") if name == "nats_url" else [value.get_secret_value()]
        return ", ".join(redacted(url.strip()) for url in urls)
    if value is None or isinstance(value, (str, int, float)):
        return value
    return jsonable(value)


def redacted(url: str) -> str:
    """Return a URL without its secrets; nothing of it if they cannot be recognized."""
    try:
        parts = urlsplit(url)
        user = parts.username
    except ValueError:
        return _HIDDEN
    # A password with a slash or a question mark in it ends up after the host.
    if not parts.scheme or not parts.netloc or "@" in url.partition("//")[2][len(parts.netloc) :]:
        return _HIDDEN
    credentials, at, host = parts.netloc.rpartition("@")
    if ":" in credentials:
        credentials = f"{user}:{_HIDDEN}"
    elif at and parts.scheme in ("nats", "tls", "ws", "wss"):  # a token stands where a user would
        credentials = _HIDDEN
    plain = parts._replace(netloc=f"{credentials}{at}{host}").geturl()
    return _SECRET_PARAMETER.sub(rf"\1{_HIDDEN}", plain)
