"""Output: what handlers stream while they run. It is not in the log, and some of it may be lost.

Chunks of one attempt are numbered from 1, so a reader sees what is missing. What an attempt has streamed is
void once a later attempt begins, unless the earlier one has ended with `SUSPENDED`: then its handler goes on.
An attempt that has streamed says at its end that it streams no more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.json import Limits, dumps, jsonable

TEXT, JSON = "text", "json"
# No handler can name these kinds: the attempt streams no more, and the next one goes on behind it, or anew.
SUSPENDED, ENDED = "grns.suspended", "grns.ended"
MARKS = frozenset({SUSPENDED, ENDED})
LONGEST_TEXT = 16_384  # characters of one chunk
CHUNK_LIMITS = Limits(document_bytes=65_536)
_MOST = 2**53
_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of what a handler streams: its attempt, its number there, its kind, and text or JSON."""

    attempt: int
    number: int
    kind: str
    data: Any


def subject_of(task_id: str, workspace: str) -> str:
    """Return the subject of a task's output. Raises InvalidInputError: `bad_name`."""
    return subjects.message(f"{subjects.OUTPUT}.{subjects.token(task_id, name='task_id')}", workspace)


def kind_of(kind: object, value: object) -> str:
    """Return the kind of a chunk: `text` for text and `json` for other values, unless said otherwise."""
    if kind is None:
        return TEXT if isinstance(value, str) else JSON
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise InvalidInputError(
            "bad_handler", f"the kind of a chunk is 1 to 32 of a-z 0-9 _, not {ascii(kind)[:100]}"
        )
    return kind


def text_of(text: str) -> str:
    """Return text that JSON can carry: without halves of characters and U+0000, which become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\x00", "\ufffd")


def value_of(value: object) -> str:
    """Return a value as JSON text. Raises InvalidInputError if it cannot be, or is larger than 64 KiB."""
    return dumps(jsonable(value), CHUNK_LIMITS)


def encode(chunk: Chunk) -> bytes:
    """Return a chunk as a message."""
    import orjson  # which `grns-client` does not have, and does not need

    return orjson.dumps(chunk)


def read(body: bytes) -> Chunk | None:
    """Return the chunk of a message; None if it is none."""
    import orjson

    try:
        said = orjson.loads(body)
        attempt, number, kind = said["attempt"], said["number"], said["kind"]
        data = said["data"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return None
    are_numbers = all(type(one) is int and 1 <= one <= _MOST for one in (attempt, number))
    is_kind = isinstance(kind, str) and (kind in MARKS or _KIND.fullmatch(kind) is not None)
    return Chunk(attempt, number, kind, data) if are_numbers and is_kind else None
