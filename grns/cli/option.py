"""Options and arguments that several commands take, checked before any connection is opened."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from grns.cli import failure
from grns.errors import InvalidInputError
from grns.model import duration, subjects
from grns.model.envelope import first_problem
from grns.model.json import parse
from grns.model.submission import Need
from grns.model.unique import Uniqueness
from grns.postgres.paging import parts
from grns.settings import load

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_LONGEST_AGO_SECONDS = 3660 * 86_400.0
_MANY = 100
_WORDS = r"(\.([A-Za-z0-9_-]{1,64}|\*)){2,4}"
_KIND = re.compile(rf"(evt|dlq){_WORDS}", re.ASCII)
_ANY_KIND = re.compile(rf"(evt|dlq|cmd){_WORDS}", re.ASCII)


class InvalidOption(click.BadParameter):
    """A value that cannot be accepted; `code` is the error code of every interface."""

    def __init__(
        self, code: str, message: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> None:
        super().__init__(message, ctx=ctx, param=param)
        self.code = code


class Checked(click.ParamType[Any]):
    """A value that a function checks and, unless it is kept, converts. It raises `InvalidInputError`."""

    def __init__(
        self,
        check: Callable[[Any], Any],
        *,
        name: str = "value",
        code: str | None = None,
        is_kept: bool = False,
    ) -> None:
        self.name = name
        self._check = check
        self._code = code
        self._is_kept = is_kept

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value, or what the function makes of it."""
        try:
            converted = self._check(value)
        except InvalidInputError as error:
            raise InvalidOption(self._code or error.code, str(error), param, ctx) from error
        return value if self._is_kept else converted


class Token(Checked):
    """A name that can be part of a subject, such as an id or a type."""

    def __init__(self, label: str, *, code: str = "bad_name") -> None:
        super().__init__(lambda value: subjects.token(value, name=label), name="name", code=code)


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


class Duration(Checked):
    """Seconds, or a number with its unit: `90`, `1.5h`."""

    def __init__(self, *, code: str, check: Callable[[float], None] = lambda _seconds: None) -> None:
        def read(value: str | float) -> float:
            seconds = _seconds(value)
            check(seconds)
            return seconds

        super().__init__(read, name="duration", code=code)


def _seconds(value: str | float) -> float:
    seconds = duration.parse(value) if isinstance(value, str) else float(value)
    if seconds is None:
        raise InvalidInputError(
            "bad_timeout", f"{ascii(value)[:100]} is not a duration: write 90, 90s, 5m, 2h or 1d"
        )
    return seconds


CURSOR = Checked(parts, name="cursor", is_kept=True)
NAME_CURSOR = Token("cursor", code="bad_cursor")


class Moment(click.ParamType[float | datetime]):
    """A time with its zone or, with `is_ago`, a duration before now."""

    name = "moment"

    def __init__(self, *, is_ago: bool = True) -> None:
        self._is_ago = is_ago

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | datetime:
        """Return the seconds ago, or the time."""
        if isinstance(value, (float, datetime)):
            return value
        if self._is_ago and (seconds := duration.parse(value)) is not None:
            if seconds > _LONGEST_AGO_SECONDS:
                self.fail(f"{ascii(value)[:100]} is more than ten years ago", param, ctx)
            return seconds
        try:
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            wrong = (
                "is neither a duration nor a time: write 90s, 5m, 2h, 1d or"
                if self._is_ago
                else "is not a time: write"
            )
            self.fail(f"{ascii(value)[:100]} {wrong} 2026-01-31T12:00:00Z", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{ascii(value)[:100]} has no zone: append Z for UTC", param, ctx)
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
                f"{ascii(value)[:100]} is not a kind: write evt.task.dead, evt.task.* (one word for each *)"
                " or dlq.task.*",
                param,
                ctx,
            )
        pattern: str = value
        return pattern


TASK_ID = Token("task id")


def _need(said: str | Need) -> Need:
    """Return a need: the id of a task and, after a colon, how it must end."""
    if isinstance(said, Need):
        return said
    task_id, _, outcome = said.partition(":")
    try:
        return Need.model_validate({"task": task_id, "outcome": outcome or "success"})
    except ValidationError as error:
        raise InvalidInputError("bad_submission", first_problem(error)) from error


def _unique(said: str | Uniqueness) -> Uniqueness:
    if isinstance(said, Uniqueness):
        return said
    try:
        return Uniqueness.model_validate(read_json(said))
    except ValidationError as error:
        raise InvalidInputError("bad_submission", f"unique: {first_problem(error)}") from error


NEED = Checked(_need, name="need")
UNIQUE = Checked(_unique, name="unique")


def together(*decorators: Decorator) -> Decorator:
    """Return one decorator that adds several options, in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for add in reversed(decorators):
            function = add(function)
        return function

    return decorate


def page_options(cursor: click.ParamType[Any]) -> Decorator:
    """Add `--limit` and `--after`, passed on under these names."""
    return together(
        click.option(
            "--limit",
            type=Whole(1, 1000, code="bad_limit"),
            default=50,
            show_default=True,
            help="Maximum number of rows.",
        ),
        click.option("--after", metavar="CURSOR", type=cursor, help="Continue after this cursor."),
    )


def states_option(states: Sequence[str]) -> Decorator:
    """Add `--state`, repeatable, passed on as `states`."""
    return click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice(states),
        help="Only those in this state. Repeatable.",
    )


task_id = click.argument("task_id", metavar="ID", type=TASK_ID)
timeout_option = click.option(
    "--timeout",
    type=Duration(code="bad_timeout"),
    metavar="TIME",
    help="Maximum time to wait: 30, 5m, 1h. Defaults to unlimited.",
)
# Of destructive commands; passed on as `is_trial` and `is_sure`.
sure_options = together(
    click.option("--dry-run", "is_trial", is_flag=True, help="Show what would happen, and change nothing."),
    click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation."),
)


def read_document(given: str | None, limit: int) -> bytes:
    """Return the bytes of a value: the value itself, `@FILE`, or `-` for standard input; `{}` for None.

    A document over the limit is read one byte beyond it, so that the parser reports it.
    """
    if given is None:
        return b"{}"
    if given == "-":
        return sys.stdin.buffer.read(limit + 1)
    if given.startswith("@"):
        try:
            with Path(given[1:]).open("rb") as file:
                return file.read(limit + 1)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise InvalidInputError("bad_file", f"cannot read {given[1:]}: {why}") from error
    return given.encode("utf-8", "surrogatepass")  # so that the parser reports what is not UTF-8


def read_json(given: str | None) -> Any:
    """Return the JSON value of an option such as `--payload`: JSON, `@FILE`, or `-`; {} for None."""
    limits = load().payload_limits
    return parse(read_document(given, limits.document_bytes), limits)


def confirm(sentence: str, *, is_sure: bool, is_trial: bool = False, count: int = 1) -> None:
    """Ask for confirmation; for more than 100 objects, ask for their number. A trial only says what it is.

    Raises:
        Exit: it is a trial.
        Abort: the answer was no.
        UsageError: there is no terminal to ask at.
    """
    if is_trial:
        failure.note(f"would {sentence}")
        raise click.exceptions.Exit(0)
    if is_sure:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(
            f"{sentence}: no terminal to ask at: add --dry-run to see it, or --yes to do it"
        )
    with _ctrl_c_aborts():
        if count <= _MANY:
            is_sure = click.confirm(f"{sentence}?", err=True)
        else:
            question = f"{sentence}? Type {count} to do it"
            typed = click.prompt(question, default="", show_default=False, err=True)
            is_sure = typed == str(count)
    if not is_sure:
        raise click.Abort


@contextmanager
def _ctrl_c_aborts() -> Iterator[None]:
    """Let Ctrl-C end a prompt at once: the handler of asyncio waits for the event loop, which is blocked."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


REASON = click.option("--reason", help="Reason, kept in the event log.")
TASK_TYPE = click.option(
    "--type", "task_type", metavar="TYPE", type=Token("task_type"), help="Only tasks of this type."
)
