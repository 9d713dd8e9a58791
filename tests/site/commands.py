"""The page of all commands, from the command line itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click
from rich_click import RichCommandPanel

from grns import cli
from grns.cli.group import Group
from tests.site.text import GENERATED, code, table

_EXITS = (
    ("0", "done"),
    ("1", "failed: an error, a task that did not succeed, a finding"),
    ("2", "wrong usage"),
    ("3", "not found"),
    ("4", "conflict: it is other than was assumed"),
    ("5", "Postgres or NATS cannot be reached"),
    ("6", "too late: it has not ended within the time"),
    ("130, 143", "ended by Ctrl-C, by SIGTERM"),
)
_WIDTH = 10_000  # a usage line is never broken


def page() -> str:
    """Return the page."""
    root = click.Context(cli.root, info_name="grns", max_content_width=_WIDTH)
    parts = [
        f"# Commands\n\n{GENERATED}\n",
        "`grns --help` and `grns COMMAND --help` show the same in the terminal. All commands take:\n\n",
        _options([one for one in cli.root.get_params(root) if one.name != "help"], root),
        "\nExit codes:\n\n",
        table(("code", "means"), _EXITS),
    ]
    for panel in cli.root.panels:
        parts.append(f"\n## {panel.name}\n")
        assert isinstance(panel, RichCommandPanel)
        for name in panel.commands or []:
            _, command, _ = cli.root.resolve_command(root, [name])
            assert command is not None
            parts += _command(command, name, root, "###")
    return "".join(parts)


def _command(command: click.Command, name: str, above: click.Context, sign: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=above)
    yield f"\n{sign} {context.command_path}\n\n{_prose(command.help or '')}\n"
    if isinstance(command, Group):
        for verb in command.list_commands(context):
            _, found, _ = command.resolve_command(context, [verb])
            assert found is not None
            yield from _command(found, verb, context, sign + "#")
        return
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"\n```text\n{context.command_path} {pieces}\n```\n"
    if examples := getattr(command, "examples", ()):
        yield "\nExamples:\n\n```text\n" + "\n".join(examples) + "\n```\n"
    if options := _options(command.get_params(context), context):
        yield "\n" + options


def _options(params: list[click.Parameter], context: click.Context) -> str:
    rows = [
        _row(one, context)
        for one in params
        if isinstance(one, click.Option) and not one.hidden and "--help" not in one.opts
    ]
    return table(("option", "means"), rows) if rows else ""


def _row(option: click.Option, context: click.Context) -> tuple[str, str]:
    names = ", ".join((*sorted(option.opts, key=len, reverse=True), *option.secondary_opts))
    value = "" if option.is_flag else " " + option.make_metavar(context).replace("INTEGER RANGE", "NUMBER")
    said = _prose(option.help or "")
    default = option.get_default(context, call=False)
    if option.show_default and default not in (None, False, ()) and not callable(default):
        said += f" Default: {code(str(default))}."
    return code(names + value), said + (" Required." if option.required else "")


def _prose(text: str) -> str:
    """Return a help text as a paragraph or more."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(text.replace("\b", ""))).strip()
