"""Data for people and for programs: tables, JSON, one JSON document a line. All of it goes to stdout."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from grns.model.secret import mask_text
from grns.model.text import ago, safe
from grns.postgres.paging import Page

TABLE, JSON, JSONL = "table", "json", "jsonl"
_GAP = 2
_SHRUNK = 11
_NOTHING = "-"
_WIDEST = 1000

# A dataclass or a mapping.
Row = Any
Cell = str | Callable[[Any], object]

STYLES = {
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
    """One column of a table: its title, and the key or function that makes a cell of a row.

    If a terminal is too narrow, columns with a `spare` number that have no values are left out first. Then
    columns with `may_shrink` are shortened, then more are left out, the one with the highest `spare` number
    first. The last column may wrap. Nothing else is cut: an id must stay complete to be copied.

    A cell with `is_age` is a time: "3 min ago" on a terminal, exact everywhere else.
    """

    title: str
    cell: Cell
    _: KW_ONLY
    is_status: bool = False
    is_age: bool = False
    may_shrink: bool = False
    spare: int = 0
    wraps: bool = False

    def of(self, row: Row, now: datetime | None) -> str:
        """Return the cell of a row as text."""
        value = value_of(row, self.cell)
        if self.is_age and isinstance(value, datetime):
            return age(value, now)
        return shown(value)


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
    """Writes rows and records in the format of `-o`."""

    def __init__(self, form: str) -> None:
        self.form = form
        # For `tail`: each record is one line that is written at once.
        self.is_endless = False

    @property
    def is_table(self) -> bool:
        """Whether a person reads it."""
        return self.form == TABLE

    def rows(
        self,
        rows: Sequence[Row],
        columns: Sequence[Column] = (),
        *,
        now: datetime | None = None,
        **around: Any,
    ) -> None:
        """Write rows. `around` are further fields of the JSON document, such as a cursor."""
        if self.form == JSON:
            _write(_json({"items": rows, **around}, indent=2))
        elif self.form == JSONL:
            for row in rows:
                _write(_json(row))
        elif rows:
            table(rows, columns, now=now)

    def page(
        self, page: Page[Any], columns: Sequence[Column], *, nothing: str, now: datetime | None = None
    ) -> None:
        """Write one page of a list and, for people, that it is empty or has a next page."""
        around = {"next_cursor": page.next_cursor, "is_partial": page.is_partial}
        self.rows(page.rows, columns, now=now, **around)
        if self.is_table and not page.rows and not page.is_partial:
            click.echo(nothing, err=True)
        elif self.form != JSON and page.next_cursor is not None:
            more = "not everything was searched, continue with" if page.is_partial else "there is more:"
            click.echo(f"{more} --after {page.next_cursor}", err=True)

    def record(self, record: Row, show: Callable[[], None]) -> None:
        """Write one record. `show` writes it for people."""
        if self.is_table:
            show()
        else:
            is_indented = self.form == JSON and not self.is_endless
            _write(_json(record, indent=2 if is_indented else None))
        if self.is_endless:
            sys.stdout.flush()

    def details(self, record: Row, names: Iterable[tuple[str, Cell]]) -> None:
        """Write one record; for people as names with their values."""
        self.record(record, lambda: details(record, names))


def table(rows: Iterable[Row], columns: Sequence[Column], *, now: datetime | None = None) -> None:
    """Write a table: fitted to a terminal, and complete everywhere else."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    drawn, width = rich_table(list(rows), columns, room=room, now=now)
    print_rich(drawn, width)


def print_rich(drawn: RenderableType, width: int = _WIDEST) -> None:
    """Write what rich draws, in colors on a terminal."""
    console = Console(
        width=width,
        force_terminal=sys.stdout.isatty(),
        highlight=False,
        no_color=bool(os.environ.get("NO_COLOR")),
    )
    with console.capture() as captured:
        console.print(drawn)
    for line in captured.get().splitlines():
        _write(line.rstrip())


def rich_table(
    rows: Sequence[Row], columns: Sequence[Column], *, room: int | None, now: datetime | None = None
) -> tuple[Table, int]:
    """Return a table that fits into `room` columns of a terminal (None: as wide as it is), and its width."""
    cells = [[column.of(row, now) for column in columns] for row in rows]
    widths = _widths(cells, columns, room)
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for place, width in widths.items():
        wraps = columns[place].wraps and place == max(widths)
        drawn.add_column(
            columns[place].title, width=width, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis"
        )
    for line in cells:
        drawn.add_row(*(_cell(line[place], columns[place]) for place in widths))
    return drawn, sum(widths.values()) + _GAP * len(widths)


def _cell(text: str, column: Column) -> Text:
    style = STYLES.get(text.partition(" ")[0], "") if column.is_status else ""
    return Text(text, style=style)  # never markup: names come from users


def _widths(cells: Sequence[Sequence[str]], columns: Sequence[Column], room: int | None) -> dict[int, int]:
    """Return the columns that fit, by their place, with their widths."""
    whole = {
        place: max(cell_len(text) for text in (column.title, *(line[place] for line in cells)))
        for place, column in enumerate(columns)
    }
    if room is None or _total(whole) <= room:
        return whole
    for place, column in enumerate(columns):
        if column.spare and all(line[place] == _NOTHING for line in cells):
            del whole[place]
    widths = {
        place: min(width, _SHRUNK) if columns[place].may_shrink else width for place, width in whole.items()
    }
    for place in sorted(widths, key=lambda place: -columns[place].spare):
        if _total(widths) <= room or columns[place].spare == 0:
            break
        del widths[place]
    left = max(0, room - _total(widths))
    for place in sorted(widths, key=lambda place: whole[place] - widths[place]):
        more = min(left, whole[place] - widths[place])
        widths[place] += more
        left -= more
    return widths


def _total(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def details(record: Any, names: Iterable[tuple[str, Cell]]) -> None:
    """Write names and values of a record; those without a value are left out."""
    fields([(name, value_of(record, cell)) for name, cell in names])


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Write names and values; those without a value are left out."""
    lines = [(name, shown(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        _write(f"{name.ljust(width)}  {_colored(value) if name == 'status' else value}")


def _colored(status: str) -> str:
    style = STYLES.get(status.partition(" ")[0])
    if style is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return status
    return click.style(status, fg=style.split()[-1], bold="bold" in style)


def value_of(record: Any, cell: Cell) -> object:
    """Return the value of a key, or of a function, of a row or an object."""
    if callable(cell):
        return cell(record)
    return record[cell] if isinstance(record, Mapping) else getattr(record, cell)


def document(title: str, value: object) -> None:
    """Write a JSON value under a title, on several lines."""
    heading(title)
    for line in _json(value, indent=2).splitlines():
        _write(f"  {line}")


def passage(title: str, body: str) -> None:
    """Write a text of several lines under a title."""
    heading(title)
    for line in body.splitlines():
        text(f"  {line}")


def heading(title: str) -> None:
    """Write a title."""
    _write(f"\n{title}")


def text(line: str) -> None:
    """Write one line, without anything that a terminal would act on."""
    _write(safe(line))


def json_line(row: Row) -> str:
    """Return a row as a line of JSONL, with its newline."""
    return _json(row) + "\n"


def jsonable(value: object) -> object:
    """Convert a value that JSON has no type for."""
    if isinstance(value, datetime):
        from grns.model.envelope import rfc3339

        return rfc3339(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def _json(value: object, *, indent: int | None = None) -> str:
    """Return JSON text in which nothing can act on a terminal; it means the same."""
    plain = mask_text(json.dumps(value, ensure_ascii=False, indent=indent, default=jsonable))
    if plain.isprintable():
        return plain
    # Controls below U+0020 are escaped already: what is left of them are our own line ends.
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in plain)


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) > 0x7F else f"\\u{ord(char):04x}"


def age(at: datetime, now: datetime | None) -> str:
    """Return a time: how long ago on a terminal; exact everywhere else, so that it stays the same."""
    return ago(at, now) if now is not None and sys.stdout.isatty() else shown(at)


def shown(value: object) -> str:
    """Return a value as text for people."""
    if value is None:
        return _NOTHING
    if isinstance(value, dict | list):
        return _json(value)
    return safe(str(jsonable(value) if isinstance(value, (datetime, Enum)) else value))


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
