"""`grns config …`: every setting, its value, and where it comes from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from grns.cli.group import CliState, Group
from grns.cli.output import Column, Output, jsonable, output_option

if TYPE_CHECKING:
    from grns.settings import Settings

_HIDDEN = "***"
_SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&#]*")


@click.group(cls=Group)
def config() -> None:
    """Show the settings and where they come from."""


@config.command()
@click.option("--origin", "has_origin", is_flag=True, help="Also show the source of each value.")
@output_option
@click.pass_context
def show(ctx: click.Context, out: Output, has_origin: bool) -> None:
    """Show every setting, without secrets."""
    from grns.settings import load

    settings = load()
    found = origins(settings, flags=frozenset(ctx.ensure_object(CliState).flags))
    rows = [
        {
            "name": name,
            "value": shown(name, getattr(settings, name)),
            "origin": found[name],
            "description": field.description,
        }
        for name, field in type(settings).model_fields.items()
    ]
    columns = [
        Column("SETTING", lambda row: row["name"]),
        Column("VALUE", lambda row: _short(row["value"]), may_shrink=True),
        *([Column("FROM", lambda row: row["origin"])] if has_origin else []),
        Column("WHAT IT IS", lambda row: row["description"], may_shrink=True, spare=1),
    ]
    out.rows(rows, columns)


def origins(settings: Settings, *, flags: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return where each setting's value comes from: the first of its sources that has one."""
    from pydantic_settings import EnvSettingsSource, InitSettingsSource

    kind = type(settings)
    given, environment = InitSettingsSource(kind, init_kwargs={}), EnvSettingsSource(kind)
    sources = kind.settings_customise_sources(kind, given, environment, environment, environment)
    found = dict.fromkeys(kind.model_fields, "default")
    for source in reversed(sources):
        found |= {name: _origin(source, name, flags) for name in source() if name in found}
    return found


def _origin(source: Any, name: str, flags: frozenset[str]) -> str:
    from pydantic_settings import EnvSettingsSource, TomlConfigSettingsSource

    if isinstance(source, TomlConfigSettingsSource):
        return f"file {source.toml_file_path}"
    if not isinstance(source, EnvSettingsSource):
        return f"env GRNS_{name.upper()}_FILE"
    # A flag is handed on as environment, so that it reaches the processes that a command starts.
    return f"flag --{name.replace('_', '-')}" if name in flags else f"env GRNS_{name.upper()}"


def shown(name: str, value: object) -> object:
    """Return a setting's value as it may be shown: of a secret, the parts that are none."""
    from pydantic import SecretStr

    if isinstance(value, SecretStr):
        # Only the brokers are a list: a comma in the database's URL may be one of its password.
        urls = value.get_secret_value().split(",") if name == "nats_url" else [value.get_secret_value()]
        return ", ".join(redacted(url.strip()) for url in urls)
    if value is None or isinstance(value, (str, int, float)):
        return value
    return jsonable(value)


def redacted(url: str) -> str:
    """Return a URL without its secrets; where it cannot be told what they are, nothing of it."""
    try:
        parts = urlsplit(url)
        user = parts.username
    except ValueError:
        return _HIDDEN
    # A password with a slash or a question mark in it ends up behind the host.
    if not parts.scheme or not parts.netloc or "@" in url.partition("//")[2][len(parts.netloc) :]:
        return _HIDDEN
    credentials, at, host = parts.netloc.rpartition("@")
    if ":" in credentials:
        credentials = f"{user}:{_HIDDEN}"
    elif at and parts.scheme in ("nats", "tls", "ws", "wss"):  # a token stands where a user would
        credentials = _HIDDEN
    plain = parts._replace(netloc=f"{credentials}{at}{host}").geturl()
    return _SECRET_PARAMETER.sub(rf"\1{_HIDDEN}", plain)


def _short(value: object) -> object:
    return "-" if value is None else value
