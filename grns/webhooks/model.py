"""Webhooks: kinds of events, bodies and retry delays."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from grns.errors import InvalidInputError
from grns.model import events as payloads
from grns.model.envelope import assemble
from grns.model.retry import JITTER
from grns.model.task import statuses_of

MOST_KINDS = 20
LONGEST_DESCRIPTION = 1000
# How long a replaced secret stays valid by default.
OVERLAP_SECONDS = 86_400.0
LONGEST_OVERLAP_SECONDS = 30 * 86_400.0

_MINUTE, _HOUR = 60.0, 3600.0
# Delays after the first attempt, the second, …: about three days in all.
_DELAYS_SECONDS = (
    5.0, 30.0, 5 * _MINUTE, 30 * _MINUTE,
    2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 14 * _HOUR, 20 * _HOUR, 24 * _HOUR,
)  # fmt: skip
_AGENTS = re.compile(r"evt\.agent\.[^.]+\.[^.]+")
_KIND = re.compile(r"(evt|dlq)(\.([A-Za-z0-9_-]{1,64}|\*)){2,4}", re.ASCII)


def make_id(milliseconds: int) -> str:
    """Return the id of a new webhook; ids sort by time."""
    return f"wh-{milliseconds & (2**48 - 1):012x}{secrets.token_hex(4)}"


def document(*, workspace: str, version: int, was: str | None, **envelope: Any) -> bytes:
    """Return the body of a request: the envelope of an event, with workspace, task version and statuses.

    On NATS the first two are headers; headers of a webhook request are not signed.
    """
    said = f',"workspace":"{workspace}","version":{version}'
    statuses = statuses_of(envelope["kind"], was)
    for name, status in zip(("previous_status", "new_status"), statuses, strict=True):
        said += "" if status is None else f',"{name}":"{status}"'
    return assemble(**envelope)[:-1] + f"{said}}}".encode()


def check_kinds(kinds: Sequence[str]) -> list[str]:
    """Return kinds such as `evt.task.dead` and `evt.task.*` without duplicates.

    Raises `InvalidInputError` if no event can have one of them.
    """
    unique = list(dict.fromkeys(kinds))
    if not 0 < len(unique) <= MOST_KINDS:
        raise InvalidInputError("bad_kind", f"pass 1 to {MOST_KINDS} kinds of events")
    for kind in unique:
        if not _KIND.fullmatch(kind) or not _may_come(kind):
            shown = ascii(kind)[:100]
            raise InvalidInputError(
                "bad_kind", f"{shown} is not a kind of event: pass evt.task.dead, evt.task.* or dlq.task.*"
            )
    return unique


def pattern(kinds: Iterable[str]) -> str:
    """Return kinds as one regular expression; a star matches one word."""
    return f"^({'|'.join(map(_expression, kinds))})$"


def check_description(text: str | None) -> None:
    """Raise `InvalidInputError` for an empty, too long or unprintable description."""
    if text is not None and not (0 < len(text) <= LONGEST_DESCRIPTION and text.isprintable()):
        raise InvalidInputError(
            "bad_webhook", f"a description is 1 to {LONGEST_DESCRIPTION} printable characters"
        )


def check_overlap(seconds: float) -> None:
    """Raise `InvalidInputError` if two secrets may not be valid for so long."""
    if not 0 <= seconds <= LONGEST_OVERLAP_SECONDS:
        raise InvalidInputError("bad_overlap", "a replaced secret stays valid for 0 seconds to 30 days")


def delay_seconds(attempts: int, random: float, *, asked_seconds: float | None = None) -> float:
    """Return the delay after so many attempts; `random` lies in [0, 1).

    A Retry-After of the server (`asked_seconds`) is honored up to the longest delay.
    """
    low, high = JITTER
    delay = _DELAYS_SECONDS[min(max(attempts, 1), len(_DELAYS_SECONDS)) - 1]
    return max(delay * (low + (high - low) * random), min(asked_seconds or 0.0, _DELAYS_SECONDS[-1]))


def _expression(kind: str) -> str:
    return kind.replace(".", r"\.").replace("*", "[^.]+")


def _may_come(kind: str) -> bool:
    """Return whether the log can have a kind."""
    expression = re.compile(_expression(kind))
    return _AGENTS.fullmatch(kind) is not None or any(map(expression.fullmatch, payloads.PAYLOADS))
