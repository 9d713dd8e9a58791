"""Failures: the stored form of an exception, its traceback, and the fingerprint that groups failures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import json
import os
import re
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import grns
from grns.model.outcome import Outcome, Verb

if TYPE_CHECKING:
    from grns.model.secret import Scrubber

LONGEST_MESSAGE = 4000
_FRAMES = 5
_LONGEST_TRACEBACK = 8000
_MOST_ENTRIES = 40
_OWN = tuple(os.path.dirname(module) + os.sep for module in (grns.__file__, asyncio.__file__))
# The code that calls a handler, in the loop or in a thread.
_CALLERS = (*_OWN, os.path.dirname(concurrent.futures.__file__) + os.sep)
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_STDLIB = tuple(
    path + os.sep for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib")
)
_COMPILED = (".pyx", ".pxd", ".pxi", ".c", ".cpp", ".rs")
# Longest forms first: the rest of an id must not be taken for a number.
_MASKS = (
    (re.compile(r"https?://\S+"), "<url>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE), "<uuid>"),
    (re.compile(r"gr-[0-9a-v]{20,}"), "<task>"),
    (re.compile(r"\"[^\"\n]*\"|'[^'\n]*'"), "<text>"),
    (re.compile(r"(?:/[\w.@+-]+){2,}/?"), "<path>"),
    (re.compile(r"\b0x[0-9a-f]+\b|\b[0-9a-f]{12,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<number>"),
)
_LONGEST_NORMALIZED = 2000


def failed(
    task_type: str,
    error_class: str,
    message: str,
    *,
    is_final: bool,
    backoff_seconds: float,
    is_usual: bool = False,
    lines: Sequence[str] = (),
    places: Sequence[str] = (),
    traceback: str = "",
) -> Outcome:
    """Return the outcome of an attempt that failed; a final one is not tried again.

    Args:
        is_usual: Whether a backoff that the task has goes before `backoff_seconds`.
        lines: Frames for a person to read, innermost first.
        places: Frames that identify the failure, innermost first.
        traceback: Text of `traceback_text`: stored with the task, left out of its events.
    """
    error: dict[str, Any] = {
        "class": error_class,
        "message": message,
        "frames": [clean(line) for line in lines],
    }
    if traceback:
        error["traceback"] = traceback
    return Outcome(
        Verb.FAIL if is_final else Verb.RETRY,
        error=json.dumps(error),
        error_class=error_class,
        fingerprint=fingerprint(task_type, error_class, message, [clean(place) for place in places]),
        backoff_seconds=backoff_seconds,
        is_usual=is_usual and not is_final,
    )


def clean(text: str, scrubber: Scrubber | None = None) -> str:
    """Return text that JSON and Postgres can store, without secrets, and cut to a useful length."""
    most = 2 * LONGEST_MESSAGE
    kept = text[:most] if scrubber is None else scrubber.part(text, 0, most)
    return kept.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def error_message(error: BaseException, scrubber: Scrubber | None = None) -> str:
    """Return an exception's message without secrets, also if its `str` raises."""
    try:
        return clean(str(error), scrubber)[:LONGEST_MESSAGE]
    except Exception as broken:
        return f"(the exception's message cannot be read: {type(broken).__name__})"


# ---------------------------------------------------------------- fingerprints


def normalize(message: str) -> str:
    """Return the message without the parts that differ from one occurrence to the next."""
    text = message[:_LONGEST_NORMALIZED]
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return " ".join(text.split())


def fingerprint(task_type: str, error_class: str, message: str, frames: Sequence[str] = ()) -> str:
    """Return 16 hex digits of task type, error class, normalized message and the top three frames."""
    parts = [task_type, error_class, normalize(message), *frames[:3]]
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


# ---------------------------------------------------------------- frames and tracebacks


class Frame(NamedTuple):
    """One line of code that was running."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class Frames(NamedTuple):
    """The frames of a failure, innermost first: those of the handler's author, and those of libraries."""

    own: Sequence[Frame]
    others: Sequence[Frame]

    def lines(self) -> list[str]:
        """Return the frames that a person reads, the author's own first."""
        return [str(frame) for frame in (*self.own, *self.others)][:_FRAMES]

    def places(self) -> list[str]:
        """Return the frames that identify the failure, without line numbers, which edits change."""
        return [f"{frame.file}:{frame.function}" for frame in self.own or self.others][:_FRAMES]


def frames_of(error: BaseException, *, module: str) -> Frames:
    """Return an exception's frames without those of grns; the package of `module` is the author's own."""
    package = module.partition(".")[0]
    own: list[Frame] = []
    others: list[Frame] = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = frame.f_code.co_filename
        if path.startswith(_OWN):
            continue
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        is_own = root == package or not _is_library(path)
        (own if is_own else others).append(Frame(path.rsplit("/", 1)[-1], line, frame.f_code.co_name))
    return Frames(own[::-1], others[::-1])


def traceback_text(error: BaseException, scrubber: Scrubber | None = None) -> str:
    """Return the traceback from the handler's frame on, without secrets; of a very long one its two ends."""
    first = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_CALLERS):
        first = first.tb_next
    try:
        entries = traceback.TracebackException(
            type(error), error, first or error.__traceback__, limit=-_MOST_ENTRIES, compact=True
        )
        text = "".join(entries.format()).rstrip()
    except Exception as broken:  # exceptions of users may raise anything
        return f"(no traceback: {type(broken).__name__})"
    parts = [(0, len(text))]
    if len(text) > _LONGEST_TRACEBACK:
        half = _LONGEST_TRACEBACK // 2
        parts = [(0, half), (len(text) - half, len(text))]
    shown = [text[start:end] if scrubber is None else scrubber.part(text, start, end) for start, end in parts]
    return printable("\n  […]\n".join(shown))


def printable(text: str) -> str:
    """Return text with escapes instead of control characters, which a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _is_library(path: str) -> bool:
    return (
        path.startswith((*_STDLIB, "<frozen "))
        or path.endswith(_COMPILED)
        or not _INSTALLED.isdisjoint(PurePath(path).parts)
    )
