"""The log: one line per signal or call, console on a terminal, JSON elsewhere, secrets removed last."""

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
from grns.model.failure import printable
from grns.telemetry import current
from grns.telemetry.log_throttle import LogThrottle
from grns.telemetry.signal import LEVELS, Signal, log_fields

# Matched from the beginning of a word, so that a long text of letters is read once.
_URL_PASSWORD = re.compile(r"(?<![a-z0-9+.-])(?P<scheme>[a-z][a-z0-9+.-]*://[^\s:/@]*):[^\s@/]*@")
# A token for the broker stands in the place of the user.
_URL_TOKEN = re.compile(r"(?P<scheme>\b(?:nats|tls|wss?)://)[^\s:/@]+@")
_SECRET_NAMES = re.compile(r"password|secret|token|credential|authorization|api_key", re.IGNORECASE)


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove passwords from URLs, secrets from keys, and the values of names that sound secret.

    Control characters are escaped: a terminal would act on them.
    """
    for name, value in event.items():
        if _SECRET_NAMES.search(name):
            event[name] = "***"
        elif isinstance(value, str):
            event[name] = printable(redacted(value))
    return event


def redacted(text: str) -> str:
    """Return a text without passwords in URLs and secrets of keys."""
    if "://" in text:
        text = _URL_TOKEN.sub(r"\g<scheme>***@", _URL_PASSWORD.sub(r"\g<scheme>:***@", text))
    return key.redacted(text)


_is_json = False


def is_json() -> bool:
    """Return whether this process writes its log as JSON: then nothing else belongs on stderr."""
    return _is_json


def configure(
    *, level: str = "info", format: str = "auto", stream: TextIO | None = None, service: str | None = None
) -> None:
    """Set up structlog for this process; lines name the service and go to stderr: stdout is for data."""
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

    def add_service(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if service is not None:
            event.setdefault("service", service)
        return event

    structlog.configure(
        processors=[
            LogThrottle(),
            structlog.contextvars.merge_contextvars,
            add_service,
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
    # We emit signals for what these log of servers that are down and of wrong requests.
    for name in ("nats", "asyncpg", "uvicorn"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


class _LogLines:
    """Writes each line in one piece, so that processes that share a stream do not mix their lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        try:
            self._descriptor: int | None = stream.fileno()
        except (OSError, ValueError):  # a stream in memory
            self._descriptor = None

    def msg(self, line: str) -> None:
        """Write one line; ignore a stream that is closed."""
        if self._descriptor is None:
            self._stream.write(line + "\n")
            return
        rest = (line + "\n").encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()
            while rest:  # a Python stream would split a line longer than its buffer
                rest = rest[os.write(self._descriptor, rest) :]

    debug = info = warning = error = critical = log = msg


class LogListener:
    """Writes each signal that is severe enough as one line."""

    def __init__(self, *, level: str) -> None:
        self._least = LEVELS[level]
        self._log = structlog.get_logger()

    def receive(self, signal: Signal) -> None:
        """Write one line."""
        if signal.severity >= self._least:
            self._log.log(signal.severity, signal.event, **log_fields(signal))


class LoggingListener:
    """Writes each signal to the logger `grns` of Python's logging, for programs that import grns."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("grns")
        self._throttle = LogThrottle()

    def receive(self, signal: Signal) -> None:
        """Write one record if the program logs its level; a traceback follows on lines of its own."""
        if not self._logger.isEnabledFor(signal.severity):
            return
        try:
            fields = self._throttle(None, "", {"event": signal.event, **log_fields(signal)})
        except structlog.DropEvent:
            return
        fields = redact(None, "", fields)
        event, traceback = fields.pop("event"), fields.pop("exception", "")
        line = " ".join([event, *(f"{name}={value!r}" for name, value in fields.items())])
        self._logger.log(signal.severity, "%s", f"{line}\n{traceback}" if traceback else line)
