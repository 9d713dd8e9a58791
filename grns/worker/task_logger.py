"""The logger of an attempt: its lines are those of the worker, and are kept with the task."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from grns.model.failure import clean, error_message, traceback_text
from grns.model.json import Limits, dumps, jsonable
from grns.model.log_line import LEVELS, LONGEST_MESSAGE, MOST_FIELD_BYTES, MOST_OF_ATTEMPT, MOST_UNSENT, Line
from grns.model.secret import Scrubber

_FIELDS = Limits(document_bytes=MOST_FIELD_BYTES)
_LONGEST_NAME, _LONGEST_REPR = 100, 200
_LEVELS = {
    "debug": 10, "info": 20, "msg": 20, "warning": 30, "warn": 30, "error": 40, "err": 40, "exception": 40,
    "critical": 50, "fatal": 50,
}  # fmt: skip
_ABOUT = frozenset({"exc_info", "stack_info", "stacklevel"})
_DERIVE = frozenset({"bind", "unbind", "try_unbind", "new"})


def _no_scrubber() -> None:
    return None


class LineBudget:
    """Numbers the lines of an attempt, and leaves out what is too many. The caller holds a lock."""

    def __init__(self) -> None:
        self._kept = self._left_out = 0

    def line(self, level: int, message: str, fields: str | None, *, unsent: int) -> Line | None:
        """Return a line that is to be kept; None if it is one too many."""
        most = MOST_OF_ATTEMPT if level < LEVELS["WARN"] else 2 * MOST_OF_ATTEMPT
        if self._kept >= most or unsent >= MOST_UNSENT:
            self._left_out += 1
            return None
        self._kept += 1
        note = ""
        if self._left_out:
            note = f" ({self._left_out} lines before it are left out)"
            self._left_out = 0
        if self._kept == MOST_OF_ATTEMPT:
            note += " (of the lines after it, only those from WARN on are kept)"
        elif self._kept == 2 * MOST_OF_ATTEMPT:
            note += " (no line after it is kept)"
        text = message[: LONGEST_MESSAGE - len(note)] + note
        return Line(self._kept, time.monotonic(), level, text, fields)


class TaskLogger:
    """`ctx.log`: a structlog logger that is bound to the task. Any thread may use it.

    Its lines from the level `GRNS_TASK_LOG_LEVEL` on are kept with the task, too: `grns task logs`. Whatever
    is logged, to log it does not fail.
    """

    def __init__(
        self,
        logger: Any,
        note: Callable[[int, str, str | None], None],
        least_level: int,
        fields: dict[str, Any] | None = None,
        find_scrubber: Callable[[], Scrubber | None] = _no_scrubber,
    ) -> None:
        self._find_scrubber = find_scrubber  # which a step may have given since
        self._logger = logger
        self._note = note
        self._least_level = least_level
        self._fields = fields or {}

    def __getattr__(self, name: str) -> Any:
        """Return a method that logs, or that returns another logger, or whatever else structlog's has."""
        if name in _DERIVE:
            return lambda *names, **fields: self._derived(name, names, fields)
        if name == "log":
            return self._log
        level = _LEVELS.get(name.removeprefix("a"))  # structlog's `ainfo` is its `info`, to be awaited
        found = getattr(self._logger, name)
        if level is None:
            return found

        def log(event: Any = None, *arguments: Any, **fields: Any) -> Any:
            event, arguments, fields = self._scrubbed(event, arguments, fields)
            if level >= self._least_level:
                self._keep(level, name.endswith("exception"), event, arguments, fields)
            return _written(found, event, arguments, self._without_values(fields, name.endswith("exception")))

        return log

    def _scrubbed(
        self, event: Any, arguments: tuple[Any, ...], fields: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        scrubber = self._find_scrubber()
        if scrubber is None:
            return event, arguments, fields
        plain = {
            scrubber.text(name): value if name in _ABOUT else _value(value, scrubber)
            for name, value in fields.items()
        }
        return message_of(event, (), scrubber), tuple([_argument(one, scrubber) for one in arguments]), plain

    def _without_values(self, fields: dict[str, Any], is_exception: bool) -> dict[str, Any]:
        """Return fields with the traceback as a text without secrets, in place of the error."""
        scrubber = self._find_scrubber()
        if scrubber is None or (error := _error_of(fields.get("exc_info", is_exception))) is None:
            return fields
        return {**fields, "exc_info": False, "exception": traceback_text(error, scrubber)}

    def _derived(self, name: str, names: tuple[str, ...], fields: dict[str, Any]) -> TaskLogger:
        _, _, fields = self._scrubbed("", (), fields)
        logger = getattr(self._logger, name)(*names, **fields)
        kept = {} if name == "new" else {one: self._fields[one] for one in self._fields if one not in names}
        return TaskLogger(logger, self._note, self._least_level, kept | fields, self._find_scrubber)

    def _log(self, level: int, event: Any = None, *arguments: Any, **fields: Any) -> Any:
        event, arguments, fields = self._scrubbed(event, arguments, fields)
        rounded = min(max(level // 10 * 10, logging.DEBUG), logging.CRITICAL)
        if rounded >= self._least_level:
            self._keep(rounded, False, event, arguments, fields)
        fields = self._without_values(fields, False)
        return _written(partial(self._logger.log, rounded), event, arguments, fields)

    def _keep(
        self, level: int, is_exception: bool, event: Any, arguments: tuple[Any, ...], fields: dict[str, Any]
    ) -> None:
        said = {**self._fields, **fields}
        error = _error_of(said.pop("exc_info", is_exception))
        said.pop("stack_info", None)
        scrubber = self._find_scrubber()
        if error is not None:
            said["error"] = f"{type(error).__name__}: {error_message(error, scrubber)}"[:LONGEST_MESSAGE]
        self._note(level, message_of(event, arguments, scrubber), fields_of(said, scrubber))


def _error_of(said: Any) -> BaseException | None:
    """Return the error of `exc_info`: an exception, what `sys.exc_info()` returns, or a bool."""
    if isinstance(said, tuple) and len(said) == 3:
        said = said[1]
    return said if isinstance(said, BaseException) else sys.exc_info()[1] if said else None


def _argument(value: Any, scrubber: Scrubber) -> Any:
    """Return an argument of a log line without secrets; numbers, which the line may format, as they are."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, dict):
        return {_argument(name, scrubber): _argument(inner, scrubber) for name, inner in value.items()}
    return message_of(value, (), scrubber)


def _written(
    write: Callable[..., Any], event: Any, arguments: tuple[Any, ...], fields: dict[str, Any]
) -> Any:
    """Log a line; one that cannot be written, such as with a bad format, as it is kept."""
    try:
        return write(event, *arguments, **fields)
    except Exception:
        return write(message_of(event, arguments), fields=fields_of(fields))


def message_of(event: Any, arguments: tuple[Any, ...] = (), scrubber: Scrubber | None = None) -> str:
    """Return what is logged as it is stored, without secrets, also if its `str` raises."""
    try:
        text = str(event)
        if arguments:
            text = _formatted(text, arguments)
        return clean(text, scrubber)[:LONGEST_MESSAGE]
    except Exception as broken:
        return f"(the message cannot be read: {type(broken).__name__})"


def _formatted(text: str, arguments: tuple[Any, ...]) -> str:
    try:
        # As structlog: one mapping is for names in the text.
        return text % (arguments[0] if len(arguments) == 1 and isinstance(arguments[0], dict) else arguments)
    except (TypeError, ValueError, KeyError):
        return f"{text} {arguments}"


def fields_of(said: dict[str, Any], scrubber: Scrubber | None = None) -> str | None:
    """Return fields as a JSON text: what is no JSON as its `repr`, and nothing of what is too large."""
    if not said:
        return None
    fields = {
        clean(str(name), scrubber)[:_LONGEST_NAME]: _value(value, scrubber) for name, value in said.items()
    }
    try:
        return dumps(fields, _FIELDS)
    except Exception:
        return dumps({"left_out": f"the fields have more than {MOST_FIELD_BYTES} bytes"})


def _value(value: Any, scrubber: Scrubber | None = None) -> Any:
    try:
        dumps(found := jsonable(value), _FIELDS)
        return found if scrubber is None else scrubber.value(found)
    except Exception:
        return _repr(value, scrubber)


def _repr(value: Any, scrubber: Scrubber | None) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
        kept = text[:_LONGEST_REPR] if scrubber is None else scrubber.part(text, 0, _LONGEST_REPR)
        return clean(kept)[:_LONGEST_REPR]
    except Exception as broken:
        return f"(its value cannot be read: {type(broken).__name__})"
