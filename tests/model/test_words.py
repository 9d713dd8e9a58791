"""The words of texts and documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grns.model.words import LONGEST_WORD, MOST_WORDS, rarest, words, words_of

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("-- / _", []),
        ("Two words, two lines\nwords", ["two", "words", "lines"]),
        ("fetch_page(https://a.example/x?n=17)", ["fetch", "page", "https", "a", "example", "x", "n", "17"]),
        ("Größe STRASSE Straße ﬁn", ["grösse", "strasse", "fin"]),
        ("Ünïcode ünïcode Ünïcode", ["ünïcode"]),
        ("x" * 100, ["x" * LONGEST_WORD]),
        ("𝐑𝐞𝐩𝐨𝐫𝐭 ℡", ["report", "tel"]),
    ],
)
def test_words_of_a_text(text: str, found: list[str]) -> None:
    assert words(text) == found


def test_words_of_documents_are_those_of_values() -> None:
    said = ["A title", None, ["tag-1", "tag-2"], {"member": {"inner": ["deep", 4711, True, 1.5]}}]
    assert words_of(said) == ["1", "2", "4711", "a", "deep", "tag", "title"]


def test_words_of_secrets_and_blobs_are_left_out() -> None:
    said = {"token": {"$secret": "1.key.salt.text"}, "file": {"$blob": "sha256-00", "type": "text/html"}}
    assert words_of([said, "rest"]) == ["rest"]


def test_words_of_a_long_document_are_the_first_ones() -> None:
    assert words_of(["first", [f"n{number:04}" for number in range(2 * MOST_WORDS)]]) == sorted(
        ["first", *(f"n{number:04}" for number in range(MOST_WORDS - 1))]
    )


def test_words_of_a_deep_document_are_read() -> None:
    deep: Any = "word"
    for _ in range(5000):
        deep = [deep]
    assert words_of([deep]) == ["word"]


@pytest.mark.parametrize(
    ("found", "first"),
    [(["a", "report"], "report"), (["503", "zanzibar"], "zanzibar"), (["report", "n0047f"], "n0047f")],
)
def test_rarest_word_is_an_id_or_the_longest(found: list[str], first: str) -> None:
    assert rarest(found) == first


@given(st.text())
def test_words_are_their_own_words(text: str) -> None:
    """Else a word that a list shows would not be found."""
    found = words(text)
    assert all(word and " " not in word for word in found)
    assert words(" ".join(found)) == found


@given(documents)
def test_words_of_a_document_are_sorted_and_can_be_stored(document: object) -> None:
    found = words_of([document])
    assert found == sorted(set(found))
    assert "\x00" not in "".join(found)
    json.dumps(found).encode()
