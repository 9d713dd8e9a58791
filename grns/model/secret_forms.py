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
_LEAST_PART = 16  # what is left of a secret that something has cut
_LEAST_CUT = 32  # a shorter secret is looked for as a whole only
_DOTS = ("...", "…")
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
    found = new = {secret, secret.strip()}
    for _ in range(_MOST_ESCAPES):
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
    """Yield where a text has a form of a secret, or what is left of a long one that something has cut.

    Libraries cut it to `beginning...end`. A text that was cut ends with the beginning of it.
    """
    start = text.find(form)
    while start >= 0:
        yield start, start + len(form)
        start = text.find(form, start + len(form))
    if len(form) < _LEAST_CUT:
        return
    start = text.find(form[:_LEAST_PART])
    while start >= 0:
        end = start + _alike(text[start : start + len(form)], form)
        if end == len(text) or text.startswith(("\n", *_DOTS), end):
            yield start, end
        start = text.find(form[:_LEAST_PART], end)
    start = text.find(form[-_LEAST_PART:])
    while start >= 0:
        end = start + _LEAST_PART
        backwards = text[max(0, end - len(form)) : end][::-1]
        start = end - _alike(backwards, form[::-1])
        if text.endswith(_DOTS, 0, start):
            yield start, end
        start = text.find(form[-_LEAST_PART:], end)


def _alike(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    if one == other:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))
