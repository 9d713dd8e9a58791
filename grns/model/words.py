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

_LONGEST_TEXT = 65_536
_SHORT = 4  # a shorter number is a count or a status
_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Return the words of a text in its order, each once: runs of letters and digits, in lower case.

    A longer word is cut at 64 characters. `fetch_page` is two words, and so is `2026-11`.

    Example:
        >>> words("Fetch_page failed: HTTP 503, HTTP 504")
        ['fetch', 'page', 'failed', 'http', '503', '504']
    """
    alike = normalize("NFKC", normalize("NFKC", text[:_LONGEST_TEXT]).casefold())
    return list(dict.fromkeys(found[0][:LONGEST_WORD] for found in _WORD.finditer(alike)))


def words_of(documents: Iterable[Any], most: int = MOST_WORDS) -> list[str]:
    """Return the words of the strings and integers in JSON documents, sorted: the first `most` of them.

    Names of members do not count, nor do secrets and references to blobs.
    """
    found: dict[str, None] = {}
    for text in _texts(documents):
        found |= dict.fromkeys(words(text))
        if len(found) >= most:
            break
    return sorted(list(found)[:most])


def rarest(found: Iterable[str]) -> str:
    """Return the word that is probably the rarest: a long one with digits is an id, or else the longest."""
    return max(found, key=lambda word: (len(word) > _SHORT and not word.isalpha(), len(word)))


def _texts(documents: Iterable[Any]) -> Iterator[str]:
    left = list(documents)[::-1]
    while left:  # not by recursion: a document may be deep
        match left.pop():
            case str(text):
                yield text
            case int(number) if not isinstance(number, bool):
                yield str(number)
            case dict(members) if SECRET not in members and BLOB not in members:
                left += reversed(members.values())
            case list(elements):
                left += reversed(elements)
