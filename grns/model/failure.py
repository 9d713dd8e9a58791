"""A failure as it is kept: one shape, wherever the code ran that failed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from grns.model.fingerprint import fingerprint
from grns.model.outcome import Outcome, Verb

LONGEST_MESSAGE = 4000


def failed(
    task_type: str,
    error_class: str,
    message: str,
    *,
    is_final: bool,
    backoff_seconds: float,
    lines: Sequence[str] = (),
    places: Sequence[str] = (),
    traceback: str = "",
) -> Outcome:
    """Return the outcome of an attempt that failed; a final one is not tried again.

    `lines` are the frames that a person looks at, `places` those that tell failures apart: both the innermost
    first. The `traceback`, as `traces.text` makes it, is stored with the task and left out of its events.
    """
    error: dict[str, Any] = {"class": error_class, "message": message, "frames": _clean_all(lines)}
    if traceback:
        error["traceback"] = traceback
    return Outcome(
        Verb.FAIL if is_final else Verb.RETRY,
        error=json.dumps(error),
        error_class=error_class,
        fingerprint=fingerprint(task_type, error_class, message, _clean_all(places)),
        backoff_seconds=backoff_seconds,
    )


def clean(text: str) -> str:
    """Return text that JSON and Postgres can hold, no longer than it is useful."""
    return text[: 2 * LONGEST_MESSAGE].encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def said(error: BaseException) -> str:
    """Return an exception's message, whatever its author has made of `str`."""
    try:
        return clean(str(error))[:LONGEST_MESSAGE]
    except Exception as broken:
        return f"(the exception's message cannot be read: {type(broken).__name__})"


def _clean_all(texts: Sequence[str]) -> list[str]:
    return [clean(one) for one in texts]
