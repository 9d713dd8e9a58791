"""Forms: reading a posted body within limits, and parsing its fields."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import ClientDisconnect, Request

from grns.errors import InvalidInputError
from grns.model.json import Limits, parse

_NUMBER = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,6})?")
_CONTENT_TYPE = "application/x-www-form-urlencoded"
_MAX_FIELDS = 300
# The largest payload with every byte percent-encoded, and the other fields.
_MAX_BYTES = 2 * 1024 * 1024
# On public pages: an API key.
_MAX_PUBLIC_BYTES = 8 * 1024
# On those with a form for people: an answer and a comment, percent-encoded.
_MAX_TEXT_BYTES = 256 * 1024


class Form(ImmutableMultiDict[str, str]):
    """The fields of a form. Blanks around a text are dropped; an empty text counts as missing."""

    def text(self, name: str) -> str | None:
        """Return the text of a field, or None if it is empty."""
        values = self.getlist(name)
        return values[0].strip() or None if values else None

    def number(self, name: str) -> float | None:
        """Return the number in a field, or None if it is empty.

        Raises:
            InvalidInputError: the text is not a number.
        """
        text = self.text(name)
        if text is None:
            return None
        if not _NUMBER.fullmatch(text):
            raise InvalidInputError(
                "bad_form", f"{name}: {ascii(text)[:40]} is not a number such as 5000 or 0.5"
            )
        return float(text)

    def integer(self, name: str) -> int | None:
        """Return the whole number in a field, or None if it is empty.

        Raises:
            InvalidInputError: the text is not a whole number.
        """
        number = self.number(name)
        if number is not None and not number.is_integer():
            raise InvalidInputError("bad_form", f"{name}: pass a whole number")
        return None if number is None else int(number)

    def json(self, name: str, limits: Limits) -> Any:
        """Return the JSON value in a field, or None if it is empty.

        Raises:
            InvalidInputError: the text is not JSON, or exceeds a limit.
        """
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse(text.encode(), limits)
        except InvalidInputError as error:
            raise InvalidInputError(error.code, f"{name}: {error}") from error


async def read_form(request: Request, *, is_public: bool = False, takes_text: bool = False) -> Form:
    """Read the posted form.

    `Request.form()` has no limit for the body, and replaces bytes that are not UTF-8.

    Raises:
        InvalidInputError: the body is not a form, is not UTF-8, or exceeds a limit.
    """
    max_bytes = _MAX_PUBLIC_BYTES if is_public else _MAX_BYTES
    max_bytes = _MAX_TEXT_BYTES if is_public and takes_text else max_bytes
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != _CONTENT_TYPE:
        raise InvalidInputError("bad_content_type", f"send the form as {_CONTENT_TYPE}")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise InvalidInputError("too_large", f"a form has at most {max_bytes} bytes")
    except ClientDisconnect as error:
        raise InvalidInputError("cut_off", "the connection closed before the form was complete") from error
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"
        )
    except ValueError as error:  # includes UnicodeError
        raise InvalidInputError("bad_form", "the body cannot be parsed as the fields of a form") from error
    return Form([(name, value.replace("\r\n", "\n")) for name, value in fields])
