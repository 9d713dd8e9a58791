"""The words of a text, as the index of tasks has them and as a filter asks for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from unicodedata import normalize

from grns.model.blob import BLOB
from grns.model.secret import SECRET

LONGEST_WORD = 64
MOST_WORDS = 500

_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Return the words of a text in its order, each once: runs of letters and digits, in lower case.

    A longer word is cut at 64 characters. `fetch_page` is two words, and so is `2026-11`.

    Example:
        >>> words("Fetch_page failed: HTTP 503, HTTP 504")
        ['fetch', 'page', 'failed', 'http', '503', '504']
    """
    found = _WORD.findall(normalize("NFKC", text.casefold()))
    return list(dict.fromkeys(word[:LONGEST_WORD] for word in found))


def words_of(documents: Iterable[Any]) -> list[str]:
    """Return the words of the strings and integers in JSON documents, sorted, the first 500 of them.

    Names of members do not count, nor do secrets and references to blobs.
    """
    found: dict[str, None] = {}
    for text in _texts(documents):
        found |= dict.fromkeys(words(text))
        if len(found) >= MOST_WORDS:
            break
    return sorted(list(found)[:MOST_WORDS])


def rarest(found: Iterable[str]) -> str:
    """Return the word that is probably the rarest: a name or number with digits, or else the longest."""
    return max(found, key=lambda word: (not word.isalpha(), len(word)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, dict):
        if SECRET not in value and BLOB not in value:
            yield from _texts(value.values())
    elif isinstance(value, Iterable):
        for element in value:
            yield from _texts(element)
