"""Groups and commands: help, loading, and the options that every command takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import click
from rich_click import RichCommand, RichCommandPanel, RichGroup

_COMPLETE = "_GRNS_COMPLETE"
_VALUES = {
    "workspace": ("NAME", "Workspace. Defaults to GRNS_WORKSPACE, else default."),
    "database_url": ("URL", "PostgreSQL URL. Defaults to GRNS_DATABASE_URL."),
    "nats_url": ("URL", "NATS URL, or several separated by commas. Defaults to GRNS_NATS_URL."),
}


@dataclass
class CliState:
    """What the options that all commands share have said."""

    debug: bool = False
    flags: dict[str, str] = field(default_factory=dict)


class RootCommand(NamedTuple):
    """One command of the root: what its list says, and where it is (`module:function`)."""

    name: str
    summary: str
    target: str

    def load(self) -> click.Command:
        """Import the command."""
        module, _, name = self.target.partition(":")
        command: click.Command = getattr(import_module(f"grns.cli.{module}"), name)
        return command


def _note_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(CliState).debug = True


def _note_flag(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None or param.name is None:
        return
    ctx.ensure_object(CliState).flags[param.name] = value
    # As environment it also reaches the processes that a command starts, keepers and workers.
    try:
        os.environ[f"GRNS_{param.name.upper()}"] = value
    except ValueError as error:
        raise click.BadParameter(f"{ascii(value)[:100]}: {error}", ctx=ctx, param=param) from error


def shared_options(*, hidden: bool = False) -> list[click.Parameter]:
    """Return the options that are taken before the noun and, unseen, behind every verb."""
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
    """One command. Takes the shared options too, so that their place does not matter."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        taken = {param.name for param in self.params}
        self.params += [option for option in shared_options(hidden=True) if option.name not in taken]


class Group(RichGroup):
    """A group of verbs, listed in the order in which they are written."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs as they were added."""
        return [name for name, command in self.commands.items() if not command.hidden]


class Root(Group):
    """The outermost group: its help needs no module, a call only the one of its command."""

    def __init__(
        self,
        name: str,
        panels: Mapping[str, Sequence[RootCommand]],
        *,
        hidden: Sequence[RootCommand],
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
        self._entries = {entry.name: entry for entry in (*listed, *hidden)}
        for entry in self._entries.values():
            self.add_command(RichCommand(name=entry.name, help=entry.summary, hidden=entry in hidden))
        click.version_option(package_name="grns", prog_name="grns")(self)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command itself in the place of what only stood for it."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder and self._entries[placeholder.name or ""].load(), rest

    def execute(self, arguments: Sequence[str], state: CliState) -> int:
        """Run one command line; what goes wrong is raised."""
        if instruction := os.environ.get(_COMPLETE):
            from click.shell_completion import shell_complete

            return shell_complete(self, {"obj": state}, "grns", _COMPLETE, instruction)
        with self.make_context("grns", list(arguments), obj=state) as context:
            self.invoke(context)
        return 0
