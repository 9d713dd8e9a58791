"""The log leaf: one line per fact, console on a terminal, JSON elsewhere, secrets removed last."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from grns.model import api_key as key
from grns.model.traces import printable
from grns.telemetry import current
from grns.telemetry.fact import Fact
from grns.telemetry.log_throttle import LogThrottle

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# Each is found from where a word begins: a text of nothing but letters is looked through once.
_URL_PASSWORD = re.compile(r"(?<![a-z0-9+.-])(?P<scheme>[a-z][a-z0-9+.-]*://[^\s:/@]*):[^\s@/]*@")
# Who shows a token to the broker writes it where a user would stand.
_URL_TOKEN = re.compile(r"(?P<scheme>\b(?:nats|tls|wss?)://)[^\s:/@]+@")
_SECRET_NAMES = re.compile(r"password|secret|token|credential|authorization|api_key", re.IGNORECASE)


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove passwords from URLs, secrets from keys, and the values of names that sound secret.

    No text keeps a control character: a terminal would act on it.
    """
    for name, value in event.items():
        if _SECRET_NAMES.search(name):
            event[name] = "***"
        elif isinstance(value, str):
            event[name] = printable(redacted(value))
    return event


def redacted(text: str) -> str:
    """Return a text without passwords in URLs and secrets of keys."""
    return key.redacted(_without_passwords(text))


def _without_passwords(text: str) -> str:
    if "://" not in text:
        return text
    return _URL_TOKEN.sub(r"\g<scheme>***@", _URL_PASSWORD.sub(r"\g<scheme>:***@", text))


_is_json = False


def is_json() -> bool:
    """Return whether this process writes its log as JSON: then nothing else belongs on stderr."""
    return _is_json


def configure(*, level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:
    """Set up structlog for this process. Lines go to stderr: stdout is for data."""
    global _is_json
    target = stream or sys.stderr
    is_console = format == "console" or (format == "auto" and target.isatty())
    _is_json = not is_console
    renderer: Any = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if is_console
        else structlog.processors.JSONRenderer()
    )
    lines = _LogLines(target)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            current.name,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([] if is_console else [structlog.processors.format_exc_info]),
            redact,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    # What these log of a server that is away, or of what a client does wrong, we tell as facts.
    for name in ("nats", "asyncpg", "uvicorn"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


class _LogLines:
    """Writes each line in one piece: processes that share a stream do not tear each other's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        try:
            self._descriptor: int | None = stream.fileno()
        except (OSError, ValueError):  # a stream in memory
            self._descriptor = None

    def msg(self, line: str) -> None:
        """Write one line. Where nobody reads any more, that is no reason to end."""
        if self._descriptor is None:
            self._stream.write(line + "\n")
            return
        rest = (line + "\n").encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()
            while rest:  # a stream of Python's would break what is longer than its buffer in two
                rest = rest[os.write(self._descriptor, rest) :]

    debug = info = warning = error = critical = log = msg


class Wording:
    """What the lines of one log say of facts: of those that repeat, fewer and fewer."""

    def __init__(self) -> None:
        self._calm = LogThrottle()

    def values(self, fact: Fact) -> dict[str, Any] | None:
        """Return a fact's fields, as its line has them; None where it is not to have one."""
        values = {name: getattr(fact, name) for name in fact.__match_args__}
        if not values.get("exception", True):
            del values["exception"]
        if fact.repeats:
            same = tuple(value for name, value in values.items() if name not in fact.varies)
            untold = self._calm.due((fact.event, *same))
            if untold is None:
                return None
            if untold:
                values["untold_repeats"] = untold
        return values


class LogLeaf:
    """Writes each fact that is severe enough as one line."""

    def __init__(self, *, level: str, **context: Any) -> None:
        self._least = LEVELS[level]
        self._wording = Wording()
        self._log = structlog.get_logger(**context)

    def read(self, fact: Fact) -> None:
        """Write one line."""
        severity = LEVELS[fact.level]
        if severity >= self._least and (values := self._wording.values(fact)) is not None:
            self._log.log(severity, fact.event, **values)
