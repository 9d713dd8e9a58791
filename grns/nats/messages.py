"""Messages, their confirmations, and the bytes that NATS reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TypeAlias

from grns.errors import BrokerRefusedError, GrnsError

HeaderLines: TypeAlias = str
"""Headers already encoded, `name: value` and CRLF each, which saves the hot path a mapping.

Pass each value that comes from outside through `one_line` when you encode them.
"""

_MOST_DIGITS = 18  # more may not fit into 64 bits
_NO_BREAKS = str.maketrans("\r\n", "  ")


def one_line(value: str) -> str:
    """Return a header value in which nothing can end its line."""
    return value.translate(_NO_BREAKS) if "\n" in value or "\r" in value else value


def whole_number(value: str) -> int | None:
    """Parse a count in a header; return None for anything else, since other programs write headers too."""
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS else None


@dataclass(slots=True)  # made for each message: frozen ones take five times as long to make
class Message:
    """A message to publish. `id` stays the same when the same message is sent again."""

    subject: str
    body: bytes
    id: str
    headers: Mapping[str, str] | HeaderLines


@dataclass(slots=True)
class Receipt:
    """The broker stored the message, or already had it (`duplicate`)."""

    stream: str
    seq: int
    duplicate: bool


Done = Callable[[Receipt | GrnsError], None]


@dataclass(frozen=True, slots=True)
class StreamState:
    """State of one stream. `epoch` is written when the stream is created: another epoch means that the stream
    has lost all its messages. `first_at` is the time at which its oldest message was stored, `first_seq` its
    number; that of the next one, if it has none. With `drops_oldest` it deletes no message before an older
    one."""

    epoch: str
    first_seq: int
    last_seq: int
    messages: int
    first_at: datetime | None
    drops_oldest: bool


@dataclass(frozen=True, slots=True)
class Lag:
    """Backlog of one durable: messages not delivered yet, delivered but not acknowledged, and delivered more
    than once. `consumer` is the subject that the durable serves, or its name if it serves several."""

    stream: str
    consumer: str
    pending: int
    unacknowledged: int
    redelivered: int


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in a stream; `stored_at` is by the broker's clock."""

    stream: str
    seq: int
    subject: str
    body: bytes
    headers: Mapping[str, str]
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class DurableState:
    """State of one durable: messages waiting, deliveries not acknowledged, waiting fetches, and the remaining
    pause (0 if it is not paused)."""

    pending: int
    ack_pending: int
    fetching: int
    paused_seconds: float


# In bytes. A longer one ends the connection: the server limits a line to 4,096 of them.
SUBJECT_LENGTH = 1024

_BEFORE_STATUS = "NATS/1.0 "
_STATUS_LENGTH = 3
_READABLE_NAME = re.compile(r"[!-9;-~]+")
_NOT_IN_SUBJECT = re.compile(r"[\x00-\x20\x7f]")
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,200}")


def encode(subject: str, body: bytes, *, reply: str = "", headers: HeaderLines | None = None) -> bytes:
    """Return the command that publishes a message. Raises `BrokerRefusedError` for an invalid subject."""
    check_subject(subject)
    if headers is None:
        return b"".join((f"PUB {subject} {reply} {len(body)}\r\n".encode(), body, b"\r\n"))
    block = f"NATS/1.0\r\n{headers}\r\n".encode("utf-8", "replace")
    line = f"HPUB {subject} {reply} {len(block)} {len(block) + len(body)}\r\n".encode()
    return b"".join((line, block, body, b"\r\n"))


def lines(headers: Mapping[str, str] | HeaderLines) -> HeaderLines:
    """Encode headers, so that no value can start another header."""
    if isinstance(headers, str):
        return headers
    for name in headers:
        _check_name(name)
    return "".join([f"{name}: {one_line(value)}\r\n" for name, value in headers.items()])


def read_headers(block: bytes) -> dict[str, str]:
    """Parse a block of headers leniently: skip lines that are not valid headers.

    A status of the server, such as `NATS/1.0 404 No Messages`, becomes `Status` and `Description`.
    """
    first, *lines = block.decode("utf-8", "replace").split("\r\n")
    headers: dict[str, str] = {}
    after = first[len(_BEFORE_STATUS) :] if first.startswith(_BEFORE_STATUS) else ""
    status, description = after[:_STATUS_LENGTH].strip(), after[_STATUS_LENGTH + 1 :]
    if status.isdecimal():
        headers["Status"] = status
    if description:
        headers["Description"] = description
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and _READABLE_NAME.fullmatch(name):
            headers[name] = value.strip()
    return headers


def size(command: bytes) -> int:
    """Return the bytes of a command that the server counts as the message: headers and body."""
    line_end = command.index(b"\r\n")
    return int(command[command.rindex(b" ", 0, line_end) + 1 : line_end])


def bad_subject(subject: str) -> BrokerRefusedError:
    """Return the error for a subject that cannot be sent."""
    return BrokerRefusedError("bad_subject", f"{ascii(subject)[:100]} is not a valid subject")


@lru_cache(maxsize=4096)
def check_subject(subject: str) -> None:
    """Raise `BrokerRefusedError` for a subject that would break the protocol; patterns pass too."""
    try:
        length = len(subject.encode())
    except UnicodeEncodeError as error:
        raise bad_subject(subject) from error
    if not 0 < length <= SUBJECT_LENGTH or _NOT_IN_SUBJECT.search(subject):
        raise bad_subject(subject)


def check_pattern(subject: str) -> None:
    """Raise `BrokerRefusedError` for an invalid subject or pattern of a subscription."""
    check_subject(subject)
    tokens = subject.split(".")
    is_partly_wild = any(wild in token and token != wild for token in tokens for wild in "*>")
    if is_partly_wild or not all(tokens) or ">" in tokens[:-1]:
        raise bad_subject(subject)


@lru_cache(maxsize=256)
def _check_name(name: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise BrokerRefusedError("bad_header", f"{ascii(name)[:100]} is not a valid header name")
