"""What commands take: values that are checked before anything is connected to."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from grns.errors import InvalidInputError
from grns.model import duration

_LONGEST_AGO_SECONDS = 3660 * 86_400.0
_MANY = 100
_WORDS = r"(\.([A-Za-z0-9_-]{1,64}|\*)){2,4}"
_KIND = re.compile(rf"(evt|dlq){_WORDS}", re.ASCII)
_ANY_KIND = re.compile(rf"(evt|dlq|cmd){_WORDS}", re.ASCII)


class InvalidOption(click.BadParameter):
    """A value that cannot be accepted; `code` is the word that every other door answers it with."""

    def __init__(
        self, code: str, message: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> None:
        super().__init__(message, ctx=ctx, param=param)
        self.code = code


class Token(click.ParamType[str]):
    """A name that may stand in a subject, as ids and types are."""

    name = "name"

    def __init__(self, what: str, *, code: str = "bad_name") -> None:
        self._what = what
        self._code = code

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        from grns.model import subjects

        try:
            return subjects.token(value, name=self._what)
        except InvalidInputError as error:
            raise InvalidOption(self._code, str(error), param, ctx) from error


class Whole(click.IntRange):
    """A whole number between two others."""

    name = "whole number"

    def __init__(self, least: int, most: int, *, code: str) -> None:
        super().__init__(least, most)
        self._code = code

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        try:
            number: int = super().convert(value, param, ctx)
        except click.BadParameter as error:
            raise InvalidOption(self._code, error.message, param, ctx) from error
        return number


class CursorType(click.ParamType[str]):
    """The place behind which a list goes on."""

    name = "cursor"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the cursor."""
        from grns.postgres.paging import parts

        try:
            parts(value)
        except InvalidInputError as error:
            raise InvalidOption(error.code, str(error), param, ctx) from error
        cursor: str = value
        return cursor


class Duration(click.ParamType[float]):
    """Seconds, or a number with its unit: `90`, `1.5h`."""

    name = "duration"

    def __init__(self, *, code: str) -> None:
        self._code = code

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if isinstance(value, (int, float)):
            return float(value)
        seconds = duration.parse(value)
        if seconds is None:
            sentence = f"{ascii(value)[:100]} is no duration: write 90, 90s, 5m, 2h or 1d"
            raise InvalidOption(self._code, sentence, param, ctx)
        return seconds


class Moment(click.ParamType[float | datetime]):
    """A duration, which is so long ago, or a time with its zone."""

    name = "moment"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | datetime:
        """Return the seconds ago, or the time."""
        if isinstance(value, (float, datetime)):
            return value
        if (seconds := duration.parse(value)) is not None:
            if seconds > _LONGEST_AGO_SECONDS:
                self.fail(f"{ascii(value)[:100]} is more than ten years ago", param, ctx)
            return seconds
        try:
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(
                f"{ascii(value)[:100]} is neither a duration nor a time: write 90s, 5m, 2h, 1d"
                " or 2026-01-31T12:00:00Z",
                param,
                ctx,
            )
        if moment.tzinfo is None:
            self.fail(f"{ascii(value)[:100]} has no zone: write a Z behind it for UTC", param, ctx)
        return moment


class KindType(click.ParamType[str]):
    """A kind of event or dead letter, with `*` for one word of it."""

    name = "kind"

    def __init__(self, *, has_commands: bool = False) -> None:
        self._pattern = _ANY_KIND if has_commands else _KIND

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the pattern."""
        if not self._pattern.fullmatch(value):
            self.fail(
                f"{ascii(value)[:100]} is no kind: write evt.task.dead, evt.task.* (one word for each *)"
                " or dlq.task.*",
                param,
                ctx,
            )
        pattern: str = value
        return pattern


TASK_ID = Token("task id")


def task_ids(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add one or more task ids, passed on as `ids`."""
    return click.argument("ids", metavar="ID...", nargs=-1, required=True, type=TASK_ID)(function)


def task_id(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add one task id, passed on as `task_id`."""
    return click.argument("task_id", metavar="ID", type=TASK_ID)(function)


def page_options(cursor: click.ParamType[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add what says which part of a long list is wanted, passed on as `limit` and `after`."""
    after = click.option("--after", metavar="CURSOR", type=cursor, help="Continue after this cursor.")
    limit = click.option(
        "--limit",
        type=Whole(1, 1000, code="bad_limit"),
        default=50,
        show_default=True,
        help="Maximum number of rows.",
    )
    return lambda function: limit(after(function))


def timeout_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--timeout`, passed on in seconds; None waits for ever."""
    return click.option(
        "--timeout",
        type=Duration(code="bad_timeout"),
        metavar="TIME",
        help="Maximum time to wait: 30, 5m, 1h.",
    )(function)


def sure_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what destructive verbs take, passed on as `is_trial` and `is_sure`."""
    function = click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")(function)
    return click.option(
        "--dry-run", "is_trial", is_flag=True, help="Show what would happen, and change nothing."
    )(function)


def read_document(said: str | None, limit: int) -> bytes:
    """Return what was given as text, as `@file` or, with `-`, on standard input; one byte over the limit
    where it is longer, so that the parser says so."""
    if said is None:
        return b"{}"
    if said == "-":
        return sys.stdin.buffer.read(limit + 1)
    if said.startswith("@"):
        try:
            with Path(said[1:]).open("rb") as file:
                return file.read(limit + 1)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise InvalidInputError("bad_file", f"cannot read {said[1:]}: {why}") from error
    return said.encode("utf-8", "surrogatepass")  # what was no UTF-8 is none again, and the parser says so


def confirm(sentence: str, *, is_sure: bool) -> None:
    """Ask before something is done; `Abort` for no, `UsageError` where nobody can be asked."""
    if is_sure:
        return
    _require_terminal(sentence)
    if not click.confirm(f"{sentence}?", err=True):
        raise click.Abort


def confirm_count(sentence: str, count: int, *, is_sure: bool) -> None:
    """Ask as `confirm` does; where it is about many, not for a yes but for their number."""
    if is_sure or count <= _MANY:
        confirm(sentence, is_sure=is_sure)
        return
    _require_terminal(sentence)
    if click.prompt(f"{sentence}? Type {count} to do it", default="", show_default=False, err=True) != str(
        count
    ):
        raise click.Abort


def _require_terminal(sentence: str) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"{sentence} needs --yes where nobody can be asked; --dry-run shows it first")
