"""A message as it was read from the socket; its headers are taken apart when somebody asks for them."""

from __future__ import annotations

import re

from nats.aio.client import Client
from nats.aio.msg import Msg

_BEFORE_STATUS = "NATS/1.0 "
_STATUS_LENGTH = 3
_HEADER_NAME = re.compile(r"[!-9;-~]+")


class Received(Msg):
    """What nats-py would have built for each message, without the work that nobody may ask for."""

    def __init__(self, client: Client, sid: int, subject: str, reply: str, data: bytes, block: bytes) -> None:
        # What else a `Msg` has, it has from its class.
        self._client = client
        self._sid = sid
        self.subject = subject
        self.reply = reply
        self.data = data
        self._block = block
        self._headers: dict[str, str] | None = None

    @property
    def headers(self) -> dict[str, str] | None:  # type: ignore[override]  # nobody sets them
        """The headers; None where there are none."""
        if self._headers is None and self._block:
            self._headers = read_headers(self._block)
        return self._headers


def read_headers(block: bytes) -> dict[str, str]:
    """Return the headers of a message, as far as they can be read.

    A status that the server sent, as `NATS/1.0 404 No Messages`, is told as `Status` and `Description`.
    """
    first, *lines = block.decode("utf-8", "replace").split("\r\n")
    headers: dict[str, str] = {}
    said = first[len(_BEFORE_STATUS) :] if first.startswith(_BEFORE_STATUS) else ""
    status, description = said[:_STATUS_LENGTH].strip(), said[_STATUS_LENGTH + 1 :]
    if status.isdecimal():
        headers["Status"] = status
    if description:
        headers["Description"] = description
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and _HEADER_NAME.fullmatch(name):
            headers[name] = value.strip()
    return headers
