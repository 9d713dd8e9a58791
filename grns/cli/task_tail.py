"""`grns task tail`: what a task streams, as it comes."""

from __future__ import annotations

import json
import sys
from functools import partial

import click

from grns.cli import failure, option
from grns.cli.group import Command
from grns.cli.output import Output, output_option
from grns.cli.session import CliSession, with_session
from grns.errors import InvalidInputError
from grns.model.output_view import OutputEvent, place_of
from grns.model.text import safe

_PLACE = "--after"


@click.command(cls=Command, examples=["grns task tail TASK_ID", "grns task tail TASK_ID -o json"])
@option.task_id
@click.option(_PLACE, metavar="ATTEMPT.NUMBER", help="Go on behind this chunk.")
@output_option
@with_session("write")
async def tail(session: CliSession, out: Output, task_id: str, after: str | None) -> None:
    """Print what a task streams until it ends. Exit code 0: succeeded, 1: did not succeed."""
    if after is not None and place_of(after) is None:
        raise InvalidInputError("bad_parameter", f"{_PLACE} is <attempt>.<number>, such as 1.17")
    status, printer = None, _Printer()
    out.is_endless = True
    async for one in session.client.stream(task_id, after=after):
        status = one.status or status
        said = {name: getattr(one, name) for name in OutputEvent.__slots__}
        out.record(
            {name: value for name, value in said.items() if value is not None}, partial(printer.show, one)
        )
    if status != "succeeded":
        raise click.exceptions.Exit(failure.FAILED)


class _Printer:
    """Prints the text of a task; what is about it goes to stderr, on lines of its own."""

    def __init__(self) -> None:
        self._is_at_line_start = True

    def show(self, one: OutputEvent) -> None:
        """Print one event."""
        if one.event != "chunk":
            self._break_line()
            failure.note(_note(one))
        elif isinstance(one.data, str):
            sys.stdout.write(safe(one.data, keep="\n\t"))
            self._is_at_line_start = one.data.endswith("\n")
        else:
            self._break_line()
            sys.stdout.write(f"{one.kind}: {safe(json.dumps(one.data, ensure_ascii=False))}\n")
        sys.stdout.flush()

    def _break_line(self) -> None:
        if not self._is_at_line_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._is_at_line_start = True


def _note(one: OutputEvent) -> str:
    return {
        "state": f"the task is {one.status}, attempt {one.attempt}",
        "reset": f"attempt {one.attempt} begins anew: what is above does not count",
        "gap": "the end may be missing" if one.lost is None else f"{one.lost} chunks are lost here",
    }.get(one.event, f"the task is {one.status}: no more comes")
