"""What a form has sent: names and texts, read no further than they may be long."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from grns.errors import InvalidInputError
from grns.model.json import Limits, parse

_NUMBER = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,6})?")
_TYPE = "application/x-www-form-urlencoded"
_MOST_FIELDS = 300
# A payload of the largest size, in which every byte is written with three, and the other fields.
_MOST_BYTES = 2 * 1024 * 1024
# A form of a page that is open to everybody: a key.
_MOST_OPEN_BYTES = 8 * 1024


class Form:
    """The fields of a form. Blanks around a text count for nothing, and an empty one is none."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._fields = fields

    def text(self, name: str) -> str | None:
        """Return a field's text, None where nothing was written."""
        return next((value.strip() or None for key, value in self._fields if key == name), None)

    def texts(self, name: str) -> list[str]:
        """Return the texts of all fields of a name."""
        return [value for key, value in self._fields if key == name]

    def is_set(self, name: str) -> bool:
        """Say whether a box was ticked."""
        return any(key == name for key, _ in self._fields)

    def number(self, name: str) -> float | None:
        """Return a field's number, None where nothing was written; `InvalidInputError`."""
        said = self.text(name)
        if said is None:
            return None
        if not _NUMBER.fullmatch(said):
            raise InvalidInputError("bad_form", f"{name}: {ascii(said)[:40]} is no number, as 5000 or 0.5")
        return float(said)

    def whole(self, name: str) -> int | None:
        """Return a field's whole number, None where nothing was written; `InvalidInputError`."""
        said = self.number(name)
        if said is not None and not said.is_integer():
            raise InvalidInputError("bad_form", f"{name}: it is a whole number")
        return None if said is None else int(said)

    def document(self, name: str, limits: Limits) -> Any:
        """Return a field's JSON, None where nothing was written; `InvalidInputError` says what is wrong with
        it."""
        said = self.text(name)
        if said is None:
            return None
        try:
            return parse(said.encode(), limits)
        except InvalidInputError as error:
            raise InvalidInputError(error.code, f"{name}: {error}") from error


async def read(request: Request, *, is_open: bool = False) -> Form:
    """Return what was sent; `InvalidInputError` where it is no form of ours, or too long; `is_open`: from
    anybody."""
    most = _MOST_OPEN_BYTES if is_open else _MOST_BYTES
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _TYPE:
        raise InvalidInputError("bad_content_type", f"a form is sent as {_TYPE}")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise InvalidInputError("too_large", f"a form has {most} bytes at most")
    except ClientDisconnect as error:
        raise InvalidInputError("cut_off", "the form ended before it was whole") from error
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
        )
    except ValueError as error:  # a UnicodeError is one
        raise InvalidInputError("bad_form", "these are no fields of a form") from error
    return Form([(name, value.replace("\r\n", "\n")) for name, value in fields])
