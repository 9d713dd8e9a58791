"""One dead letter, shown: a task, or a message with the bytes that came, made harmless."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from grns.cli import failure
from grns.cli.dead_letter import MessageIds
from grns.cli.detail import show_task
from grns.cli.output import Output, document, fields, heading, text
from grns.cli.session import reading
from grns.dead_letters import message as letter
from grns.errors import InvalidInputError, NotFoundError
from grns.text import sized

_SHOWN_BYTES = 4096
_HEX_WIDTH = 16


async def show_letter(out: Output, dead_letter_id: str, *, is_raw: bool) -> None:
    """Show one dead letter of either kind."""
    async with reading() as session:
        message = await MessageIds(session).message(dead_letter_id)
        if message is not None:
            _show(out, message, is_raw=is_raw)
            return
        if is_raw:
            raise InvalidInputError("bad_option", f"--raw is for messages, and {dead_letter_id} is none")
        try:
            await show_task(session.client, out, dead_letter_id)
        except NotFoundError as error:
            missing = NotFoundError(
                f"there is no dead letter {dead_letter_id} in workspace {session.workspace}"
            )
            raise failure.hinted(missing, "grns dlq list") from error


def _show(out: Output, message: Mapping[str, Any], *, is_raw: bool) -> None:
    body: bytes = message["body"]
    if is_raw:
        if sys.stdout.isatty():
            raise InvalidInputError("bad_option", "--raw could harm a terminal: send it to a file or a pipe")
        sys.stdout.buffer.write(body)
        return
    out.record(letter.document(message), lambda: _draw(message, body))


def _draw(message: Mapping[str, Any], body: bytes) -> None:
    fields(
        [
            ("id", message["id"]),
            ("state", message["state"]),
            ("reason", message["reason"]),
            ("detail", message["detail"]),
            ("subject", message["subject"]),
            ("stream", f"{message['stream']} #{message['stream_seq']}"),
            ("deliveries", message["delivery_count"]),
            ("workspace", message["workspace"]),
            ("came", message["created_at"]),
            ("changed", message["updated_at"]),
            ("sha256", message["body_sha256"]),
        ]
    )
    if message["headers"]:
        document("headers", message["headers"])
    part = f", its first {sized(_SHOWN_BYTES)}" if len(body) > _SHOWN_BYTES else ""
    heading(f"body ({sized(len(body))}{part})")
    for line in _lines(body):
        text(f"  {line}")


def _lines(body: bytes) -> list[str]:
    """Return the beginning of a body: its lines where it is text, else hexadecimal."""
    if letter.text(body) is None:
        return _hexadecimal(body[:_SHOWN_BYTES])
    return body[:_SHOWN_BYTES].decode(errors="ignore").split("\n")


def _hexadecimal(body: bytes) -> list[str]:
    lines = []
    for start in range(0, len(body), _HEX_WIDTH):
        part = body[start : start + _HEX_WIDTH]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{3 * _HEX_WIDTH}} {letters}")
    return lines
