"""Messages as the bytes that NATS reads, with nothing in them that could be a second command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from grns.errors import BrokerRefusedError
from grns.nats.interface import HeaderLines, one_line

# In bytes. A longer one ends the connection: the server limits a line to 4,096 of them.
SUBJECT_LENGTH = 1024

_NOT_IN_SUBJECT = re.compile(r"[\x00-\x20\x7f]")
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,200}")


def encode(subject: str, body: bytes, *, reply: str = "", headers: HeaderLines | None = None) -> bytes:
    """Return the command that publishes a message, or raise `BrokerRefusedError` for what cannot be sent."""
    check_subject(subject)
    if headers is None:
        return b"".join((f"PUB {subject} {reply} {len(body)}\r\n".encode(), body, b"\r\n"))
    block = f"NATS/1.0\r\n{headers}\r\n".encode("utf-8", "replace")
    line = f"HPUB {subject} {reply} {len(block)} {len(block) + len(body)}\r\n".encode()
    return b"".join((line, block, body, b"\r\n"))


def lines(headers: Mapping[str, str] | HeaderLines) -> HeaderLines:
    """Return headers written out, with nothing in them that could be another header."""
    if isinstance(headers, str):
        return headers
    for name in headers:
        _check_name(name)
    return "".join([f"{name}: {one_line(value)}\r\n" for name, value in headers.items()])


def size(command: bytes) -> int:
    """Return how much of the command the server counts as the message: headers and body."""
    line_end = command.index(b"\r\n")
    return int(command[command.rindex(b" ", 0, line_end) + 1 : line_end])


def bad_subject(subject: str) -> BrokerRefusedError:
    """Return the error for a subject that cannot be sent."""
    return BrokerRefusedError("bad_subject", f"{ascii(subject)[:100]} is no subject that the broker takes")


@lru_cache(maxsize=4096)
def check_subject(subject: str) -> None:
    """Raise `BrokerRefusedError` for what would harm the line; patterns pass too."""
    try:
        length = len(subject.encode())
    except UnicodeEncodeError as error:
        raise bad_subject(subject) from error
    if not 0 < length <= SUBJECT_LENGTH or _NOT_IN_SUBJECT.search(subject):
        raise bad_subject(subject)


def check_pattern(subject: str) -> None:
    """Raise `BrokerRefusedError` for what cannot be listened to."""
    check_subject(subject)
    tokens = subject.split(".")
    partly_wild = any(wild in token and token != wild for token in tokens for wild in "*>")
    if partly_wild or not all(tokens) or ">" in tokens[:-1]:
        raise bad_subject(subject)


@lru_cache(maxsize=256)
def _check_name(name: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise BrokerRefusedError("bad_header", f"{ascii(name)[:100]} is no name of a header")
