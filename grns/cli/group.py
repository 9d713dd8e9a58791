"""Groups and commands: help, loading, and the options that every command takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import click
from rich_click import RichCommand, RichCommandPanel, RichGroup

_VALUES = {
    "workspace": ("NAME", "Workspace. Defaults to GRNS_WORKSPACE, else default."),
    "database_url": ("URL", "PostgreSQL URL. Defaults to GRNS_DATABASE_URL."),
    "nats_url": ("URL", "NATS URL, or several separated by commas. Defaults to GRNS_NATS_URL."),
}


@dataclass
class CliState:
    """The values of the options that all commands share."""

    debug: bool = False
    flags: dict[str, str] = field(default_factory=dict)


class LazyCommand(NamedTuple):
    """A command that is imported when it is called: its help line, and its place (`module:function`)."""

    name: str
    summary: str
    target: str

    def load(self) -> click.Command:
        """Import the command."""
        module, _, name = self.target.partition(":")
        command: click.Command = getattr(import_module(f"grns.cli.{module}".rstrip(".")), name)
        return command


def _note_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(CliState).debug = True


def _note_flag(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None or param.name is None:
        return
    ctx.ensure_object(CliState).flags[param.name] = value
    # As environment it also reaches the processes that a command starts, heartbeat processes and workers.
    try:
        os.environ[f"GRNS_{param.name.upper()}"] = value
    except ValueError as error:
        raise click.BadParameter(f"{ascii(value)[:100]}: {error}", ctx=ctx, param=param) from error


def shared_options(*, hidden: bool = False) -> list[click.Parameter]:
    """Return the options that are taken before the noun and, hidden, by every command."""
    values: list[click.Parameter] = [
        click.Option(
            [f"--{name.replace('_', '-')}"],
            metavar=metavar,
            help=text,
            hidden=hidden,
            expose_value=False,
            callback=_note_flag,
        )
        for name, (metavar, text) in _VALUES.items()
    ]
    debug = click.Option(
        ["--debug"],
        is_flag=True,
        help="Show the traceback of an error (or GRNS_DEBUG=1).",
        envvar="GRNS_DEBUG",
        hidden=hidden,
        expose_value=False,
        callback=_note_debug,
    )
    return [*values, debug]


class Command(RichCommand):
    """A command with examples. It takes the shared options too, so that their place does not matter."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        if examples:
            kwargs["epilog"] = "\n\n".join(("Examples:", *examples))
        super().__init__(*args, **kwargs)
        self.examples = examples
        taken = {param.name for param in self.params}
        self.params += [option for option in shared_options(hidden=True) if option.name not in taken]


class Group(RichGroup):
    """A group of commands, listed in the order in which they are written."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of their definition."""
        return [name for name, command in self.commands.items() if not command.hidden]


class LazyGroup(Group):
    """A group whose help imports nothing, and whose call imports only the module of the command."""

    def __init__(
        self,
        name: str,
        panels: Mapping[str, Sequence[LazyCommand]],
        **kwargs: Any,
    ) -> None:
        super().__init__(
            name=name,
            panels=[
                RichCommandPanel(title, commands=[entry.name for entry in entries])
                for title, entries in panels.items()
            ],
            context_settings={"help_option_names": ["-h", "--help"]},
            **kwargs,
        )
        listed = [entry for entries in panels.values() for entry in entries]
        self._entries = {entry.name: entry for entry in listed}
        for entry in self._entries.values():
            self.add_command(RichCommand(name=entry.name, help=entry.summary))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command itself in place of its entry."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder and self._entries[placeholder.name or ""].load(), rest
