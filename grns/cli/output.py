"""Data for people and for programs: tables, JSON, one JSON document a line. All of it goes to stdout."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from textwrap import wrap
from typing import Any

import click

from grns.text import ago, safe

TABLE, JSON, JSONL = "table", "json", "jsonl"
_GAP = 2
_SHRUNK = 11
_NOTHING = "-"

Row = Mapping[str, Any]

# The last word is a color of click.
_STYLES = {
    "succeeded": "green",
    "running": "cyan",
    "queued": "yellow",
    "waiting": "blue",
    "retry_wait": "magenta",
    "failed": "red",
    "dead": "bold red",
    "cancelled": "bright_black",
    "pending": "blue",
    "canary": "cyan",
    "paused": "yellow",
    "done": "green",
    "delivered": "green",
    "aborted": "bright_black",
    "new": "yellow",
    "acknowledged": "cyan",
    "ignored": "bright_black",
    "resolved": "green",
    "regressed": "bold red",
    "valid": "green",
    "expired": "yellow",
    "revoked": "bright_black",
    "enabled": "green",
    "alive": "green",
    "silent": "red",
    "failing": "red",
    "disabled": "bright_black",
}


@dataclass(frozen=True)
class Column:
    """One column of a table: its head, the cell that it makes of a row, and how the cell is shown.

    On a terminal that is too narrow, those that can be spared and say nothing are left out, then columns
    that may shrink do so, then more are left out, the one with the highest number first. What wraps, the last
    column alone, goes on in the next line. Nothing else is ever cut: an id is there to be copied.
    """

    title: str
    cell: Callable[[Row], object]
    is_status: bool = False
    may_shrink: bool = field(default=False, kw_only=True)
    spare: int = field(default=0, kw_only=True)
    wraps: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class When:
    """A time in a table: how long ago on a terminal; exact everywhere else, so that it stays the same."""

    at: datetime
    now: datetime

    def __str__(self) -> str:
        """Return how long ago it was."""
        return ago(self.at, self.now)


def when(at: datetime | None, now: datetime) -> When | None:
    """Return a time for a table; None where there is none."""
    return None if at is None else When(at, now)


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-o`, passed on as the keyword `out`: an `Output`."""
    return click.option(
        "-o",
        "--output",
        "out",
        type=click.Choice([TABLE, JSON, JSONL]),
        default=TABLE,
        show_default=True,
        callback=lambda _ctx, _param, value: Output(value),
        help="Output format.",
    )(function)


class Output:
    """Writes rows and records in the form that was asked for."""

    def __init__(self, form: str) -> None:
        self.form = form
        # Somebody reads along: each line is sent at once, and none is spread over several.
        self.is_endless = False

    @property
    def is_table(self) -> bool:
        """Tell whether a person reads it."""
        return self.form == TABLE

    def rows(self, rows: Sequence[Row], columns: Sequence[Column], **around: Any) -> None:
        """Write many rows; `around` goes into the JSON document beside them, as a cursor does."""
        if self.form == JSON:
            _write(_json({"items": rows, **around}, indent=2))
        elif self.form == JSONL:
            for row in rows:
                _write(_json(row))
        elif rows:
            table(rows, columns)

    def record(self, record: Row, show: Callable[[], None]) -> None:
        """Write one thing; `show` writes it for people."""
        if self.is_table:
            show()
        else:
            is_spread = self.form == JSON and not self.is_endless
            _write(_json(record, indent=2 if is_spread else None))
        if self.is_endless:
            sys.stdout.flush()

    def end(
        self, rows: Sequence[Row], next_cursor: str | None, *, nothing: str, is_partial: bool = False
    ) -> None:
        """Tell a person that there was nothing, or is more; or may be, where not all was looked at."""
        if self.is_table and not rows and not is_partial:
            click.echo(nothing, err=True)
        elif self.form != JSON and next_cursor is not None:
            more = "not all was looked at, go on" if is_partial else "there is more"
            click.echo(f"{more}: --after {next_cursor}", err=True)


def table(rows: Iterable[Row], columns: Sequence[Column]) -> None:
    """Write a table: fitted to a terminal, and whole everywhere else."""
    cells = [[told(column.cell(row)) for column in columns] for row in rows]
    if sys.stdout.isatty():
        _fitted(cells, columns)
    else:
        _whole([[column.title for column in columns], *cells])


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Write names and values, those without a value left out."""
    shown = [(name, told(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        _write(f"{name.ljust(width)}  {_painted(value) if name == 'status' else value}")


def document(title: str, value: object) -> None:
    """Write a JSON value under a title, in many lines."""
    _write(f"\n{title}")
    for line in _json(value, indent=2).splitlines():
        _write(f"  {line}")


def passage(title: str, said: str) -> None:
    """Write a text of many lines under a title."""
    heading(title)
    for line in said.splitlines():
        text(f"  {line}")


def heading(title: str) -> None:
    """Write a title."""
    _write(f"\n{title}")


def text(line: str) -> None:
    """Write one line, made harmless."""
    _write(safe(line))


def line(row: Row) -> str:
    """Return a row as JSONL has it, with the end of its line."""
    return _json(row) + "\n"


def jsonable(value: object) -> object:
    """Return what JSON has no type for as what it has one for."""
    if isinstance(value, datetime):
        from grns.model.envelope import rfc3339

        return rfc3339(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def _json(value: object, *, indent: int | None = None) -> str:
    """Return JSON text in which nothing can act on a terminal; it means the same."""
    plain = json.dumps(value, ensure_ascii=False, indent=indent, default=jsonable)
    if plain.isprintable():
        return plain
    # Controls below U+0020 are escaped already: what is left of them are our own line ends.
    return "".join(letter if letter.isprintable() or letter == "\n" else _escape(letter) for letter in plain)


def _escape(letter: str) -> str:
    return json.dumps(letter)[1:-1] if ord(letter) > 0x7F else f"\\u{ord(letter):04x}"


def told(value: object) -> str:
    """Return a value as a cell of a table shows it."""
    if value is None:
        return _NOTHING
    if isinstance(value, When) and not sys.stdout.isatty():
        value = value.at
    return safe(jsonable(value) if isinstance(value, datetime) else str(value))  # type: ignore[arg-type]


def _painted(status: str, width: int = 0) -> str:
    padded = status.ljust(width)
    style = _STYLES.get(status.partition(" ")[0])
    if style is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return padded
    return click.style(padded, fg=style.split()[-1], bold="bold" in style)


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")


def _whole(lines: Sequence[Sequence[str]]) -> None:
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        _write("  ".join(padded).rstrip())


def _fitted(cells: Sequence[list[str]], columns: Sequence[Column]) -> None:
    widths = _widths(cells, columns, shutil.get_terminal_size().columns)
    _write(_bold("".join(_sized(columns[place].title, width) for place, width in widths.items()).rstrip()))
    *_, last = widths
    for line in cells:
        rest: list[str] = []
        if columns[last].wraps:
            line[last], *rest = _wrapped(line[last], widths[last] - _GAP)
        shown = (
            _painted(line[place], width) if columns[place].is_status else _sized(line[place], width)
            for place, width in widths.items()
        )
        _write("".join(shown).rstrip())
        before = " " * (sum(widths.values()) - widths[last])
        for more in rest:
            _write(before + more)


def _widths(cells: Sequence[Sequence[str]], columns: Sequence[Column], room: int) -> dict[int, int]:
    """Return the columns that there is room for, by their places, and how wide each is, gap included."""
    from rich.cells import cell_len

    whole = {
        place: max(cell_len(text) for text in (column.title, *(line[place] for line in cells))) + _GAP
        for place, column in enumerate(columns)
    }
    room += _GAP  # there is none behind the last column
    if sum(whole.values()) > room:
        for place, column in enumerate(columns):
            if column.spare and all(line[place] == _NOTHING for line in cells):
                del whole[place]
    widths = {
        place: min(width, _SHRUNK + _GAP) if columns[place].may_shrink else width
        for place, width in whole.items()
    }
    for place in sorted(widths, key=lambda place: -columns[place].spare):
        if sum(widths.values()) <= room or columns[place].spare == 0:
            break
        del widths[place]
    left = max(0, room - sum(widths.values()))
    for place in sorted(widths, key=lambda place: whole[place] - widths[place]):
        more = min(left, whole[place] - widths[place])
        widths[place] += more
        left -= more
    return widths


def _wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines of a width; there is at least one."""
    from rich.cells import chop_cells

    # Words are kept whole where a letter is one cell wide.
    return (wrap(text, width) if text.isascii() else chop_cells(text, width)) or [""]


def _sized(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width - _GAP:
        text = set_cell_size(text, width - _GAP - 1) + "…"
    return set_cell_size(text, width)


def _bold(text: str) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, bold=True)
