"""Where an exception came from: the frames that are kept with a failure, and the text for the log."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import PurePath
from types import TracebackType
from typing import NamedTuple

import grns

_FRAMES = 5
_LONGEST_TEXT = 8000
_MOST_ENTRIES = 40
_OURS = tuple(os.path.dirname(module) + os.sep for module in (grns.__file__, asyncio.__file__))
# What calls a handler, in the loop or in a thread.
_CALLERS = (*_OURS, os.path.dirname(concurrent.futures.__file__) + os.sep)
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_STDLIB = tuple(
    path + os.sep for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib")
)
_COMPILED = (".pyx", ".pxd", ".pxi", ".c", ".cpp", ".rs")


class Frame(NamedTuple):
    """One line of somebody's code that was being run."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"

    @property
    def place(self) -> str:
        """The frame without its line, which the next edit of the file changes."""
        return f"{self.file}:{self.function}"


class Frames(NamedTuple):
    """The frames of a failure, the innermost first: those of the handler's author, and of libraries."""

    own: Sequence[Frame]
    others: Sequence[Frame]

    def lines(self) -> list[str]:
        """Return what a person looks at: what they wrote themselves comes first."""
        return [str(frame) for frame in (*self.own, *self.others)][:_FRAMES]

    def places(self) -> list[str]:
        """Return what tells failures apart; another version of a library is none."""
        return [frame.place for frame in self.own or self.others][:_FRAMES]


def frames(error: BaseException, *, module: str) -> Frames:
    """Return an exception's frames without ours; all of the package of `module` are the author's own."""
    package = module.partition(".")[0]
    own: list[Frame] = []
    others: list[Frame] = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = frame.f_code.co_filename
        if path.startswith(_OURS):
            continue
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        is_own = root == package or not _is_library(path)
        found = Frame(path.rsplit("/", 1)[-1], line, frame.f_code.co_name)
        (own if is_own else others).append(found)
    return Frames(own[::-1], others[::-1])


def text(error: BaseException) -> str:
    """Return the traceback, from the handler's frame on; of a very long one its two ends."""
    try:
        told = traceback.TracebackException(
            type(error), error, _from_the_handler(error.__traceback__), limit=-_MOST_ENTRIES, compact=True
        )
        whole = "".join(told.format()).rstrip()
    except Exception as broken:  # an author's exception may be of any make
        return f"(no traceback: {type(broken).__name__})"
    if len(whole) > _LONGEST_TEXT:
        half = _LONGEST_TEXT // 2
        whole = f"{whole[:half]}\n  […]\n{whole[-half:]}"
    return printable(whole)


def printable(text: str) -> str:
    """Return a text that a terminal shows and does not act on: escapes instead of control characters."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _from_the_handler(trace: TracebackType | None) -> TracebackType | None:
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_CALLERS):
        first = first.tb_next
    return first or trace


def _is_library(path: str) -> bool:
    return (
        path.startswith((*_STDLIB, "<frozen "))
        or path.endswith(_COMPILED)
        or not _INSTALLED.isdisjoint(PurePath(path).parts)
    )
