"""The forms in which programs write a secret, and where a text has one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from grns.model.failure import printable

LEAST_SCRUBBED = 6
"""Secrets of fewer characters are not looked for in texts: too much else is alike."""
_MOST_ESCAPES = 3  # such as of an error that an error quotes, as a field of a log line
_LEAST_LINE = 16  # a line of a secret that has several
_LEAST_PART, _MOST_PART = 16, 256  # of what a library has left of a secret
_LONG = 4096  # the more a secret has, the more all of its forms have
_LEAST_CUT = 32  # a shorter secret is looked for as a whole only
_DOTS = ("...", "…", "\\u2026")
_ESCAPES = (
    lambda text: repr(text)[1:-1],
    lambda text: repr(text + "'\"")[1:-4],  # as within a text that has both quotes
    lambda text: repr(text.encode("utf-8", "surrogatepass"))[2:-1],
    lambda text: ascii(text)[1:-1],
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    printable,
)


def forms_of(secret: str) -> set[str]:
    """Return a secret as programs write it.

    That is as it is; escaped up to three times as Python's `repr` and JSON do; in URLs; in base64, also as a
    part of something longer; and the lines of one that has several.
    """
    found = new = {form for form in (secret, secret.strip()) if len(form) >= LEAST_SCRUBBED}
    for _ in range(_MOST_ESCAPES if len(secret) <= _LONG else 1):
        new = {escape(form) for form in new for escape in _ESCAPES} - found
        found = found | new
    raw = secret.encode("utf-8", "surrogatepass")
    found |= {quote(raw), quote(raw, safe=""), quote_plus(raw), *_base64_forms(raw)}
    if len(lines := secret.splitlines()) > 1:  # each of them may be indented
        found |= {line for one in lines if len(line := one.strip()) >= _LEAST_LINE}
    return {form for form in found if len(form) >= LEAST_SCRUBBED}


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Yield the base64 of bytes behind 0, 1 and 2 others, without what these and the next ones decide."""
    for before, mixed in ((0, 0), (1, 2), (2, 3)):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(bytes(before) + raw).decode()
            yield text.rstrip("=")[mixed : None if text[-1] != "=" else -1]


def places_of(form: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield where a text has a form of a secret, or what a library has left of a long one: `beginning...end`.

    The time grows with the length of the text, whatever the text and the secret are.
    """
    start = text.find(form)
    while start >= 0:
        yield start, start + len(form)
        start = text.find(form, start + len(form))
    if len(form) < _LEAST_CUT:
        return
    for dots in _DOTS:
        place = text.find(dots)
        while place >= 0:
            before = text[max(0, place - _MOST_PART) : place]
            if (length := beginning_of(form, before, _LEAST_PART)) > 0:
                yield place - length, place
            after = place + len(dots)
            if (length := end_of(form, text[after : after + _MOST_PART], _LEAST_PART)) > 0:
                yield after, after + length
            place = text.find(dots, after)


def beginning_of(form: str, before: str, least: int) -> int:
    """Return with how many characters of a form's beginning a text ends, the most; 0: fewer than `least`."""
    start = before.find(form[:least])
    while start >= 0:
        if form.startswith(before[start:]):
            return len(before) - start
        start = before.find(form[:least], start + 1)
    return 0


def end_of(form: str, after: str, least: int) -> int:
    """Return with how many characters of a form's end a text begins, the most; 0: fewer than `least`."""
    start = after.rfind(form[-least:])
    while start >= 0:
        end = start + least
        if form.endswith(after[:end]):
            return end
        start = after.rfind(form[-least:], 0, end - 1)
    return 0
