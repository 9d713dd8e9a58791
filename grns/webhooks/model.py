"""Webhooks: which events one is told of, how that is signed, and when it is tried again.

What is sent is signed as Standard Webhooks has it: HMAC-SHA256 over `<id>.<timestamp>.<body>`.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grns.errors import InvalidInputError
from grns.model import events as payloads
from grns.model.envelope import assemble
from grns.model.retry import JITTER

MOST_KINDS = 20
LONGEST_DESCRIPTION = 1000
# How long a secret that was replaced is good beside the new one, unless somebody says otherwise.
OVERLAP_SECONDS = 86_400.0
LONGEST_OVERLAP_SECONDS = 30 * 86_400.0

_PREFIX = "whsec_"
_SECRET_BYTES = 32
_MINUTE, _HOUR = 60.0, 3600.0
# After the first attempt, the second, …: about three days in all.
_DELAYS_SECONDS = (
    5.0, 30.0, 5 * _MINUTE, 30 * _MINUTE,
    2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 14 * _HOUR, 20 * _HOUR, 24 * _HOUR,
)  # fmt: skip
_KIND = re.compile(r"(evt|dlq)(\.([A-Za-z0-9_-]{1,64}|\*)){2,4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Secret:
    """What one webhook is signed with. What is printed of it by accident is without it."""

    value: bytes = field(repr=False)

    def reveal(self) -> str:
        """Return the secret as its holder is shown it, once."""
        return _PREFIX + base64.b64encode(self.value).decode()


def make_secret() -> Secret:
    """Return a new secret."""
    return Secret(secrets.token_bytes(_SECRET_BYTES))


def make_id(milliseconds: int) -> str:
    """Return the id of a new webhook; ids sort by time, and nothing else is decided by that."""
    return f"wh-{milliseconds & (2**48 - 1):012x}{secrets.token_hex(4)}"


def sign(keys: Iterable[Secret], message_id: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """Return the headers that say which message it is, when it was sent, and who by: a signature for each."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(one.value, signed, "sha256")).decode() for one in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def document(*, workspace: str, version: int, **envelope: Any) -> bytes:
    """Return what is sent of an event: its envelope, with the workspace and the task's version besides.

    On the bus these are headers; here headers are not signed.
    """
    return assemble(**envelope)[:-1] + f',"workspace":"{workspace}","version":{version}}}'.encode()


def check_kinds(kinds: Sequence[str]) -> list[str]:
    """Return kinds as `evt.task.dead` and `evt.task.*`, each once; `InvalidInputError` where one can never
    come."""
    wanted = list(dict.fromkeys(kinds))
    if not 0 < len(wanted) <= MOST_KINDS:
        raise InvalidInputError("bad_kind", f"a webhook is told of 1 to {MOST_KINDS} kinds of events")
    for kind in wanted:
        if not _KIND.fullmatch(kind) or not _may_come(kind):
            shown = ascii(kind)[:100]
            raise InvalidInputError(
                "bad_kind", f"{shown} is no kind of event: write evt.task.dead, evt.task.* or dlq.task.*"
            )
    return wanted


def pattern(kinds: Iterable[str]) -> str:
    """Return kinds as one regular expression: each star is one word."""
    return f"^({'|'.join(map(_expression, kinds))})$"


def check_description(text: str | None) -> None:
    """Refuse what nobody could read, with `InvalidInputError`."""
    if text is not None and not (0 < len(text) <= LONGEST_DESCRIPTION and text.isprintable()):
        raise InvalidInputError(
            "bad_webhook", f"a description is 1 to {LONGEST_DESCRIPTION} printable characters"
        )


def check_overlap(seconds: float) -> None:
    """Refuse a time for which no two secrets can be good, with `InvalidInputError`."""
    if not 0 <= seconds <= LONGEST_OVERLAP_SECONDS:
        raise InvalidInputError(
            "bad_overlap", "the secret that is replaced is good for 0 seconds to 30 days more"
        )


def delay_seconds(attempts: int, random: float, *, asked_seconds: float | None = None) -> float:
    """Return how long to wait after so many attempts; `random` lies in [0, 1).

    Whoever has asked for patience (`asked_seconds`) gets it, up to the longest delay that there is.
    """
    low, high = JITTER
    delay = _DELAYS_SECONDS[min(max(attempts, 1), len(_DELAYS_SECONDS)) - 1]
    return max(delay * (low + (high - low) * random), min(asked_seconds or 0.0, _DELAYS_SECONDS[-1]))


def _expression(kind: str) -> str:
    return kind.replace(".", r"\.").replace("*", "[^.]+")


def _may_come(kind: str) -> bool:
    """Say whether the log has such a kind; what agents tell (`evt.agent.…`) is on the bus alone."""
    wanted = re.compile(_expression(kind))
    return any(wanted.fullmatch(known) for known in payloads.PAYLOADS)
