"""The fingerprint: equal for failures that a person would call the same, and only for those."""

from __future__ import annotations

import re
import time

import pytest

from grns.model.failure import fingerprint, normalize


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no user 17", "no user 4711"),
        ("took 0.25 s", "took 13.5 s"),
        ("GET https://a.example/x?id=1 failed", "GET http://b.example/y/z#2 failed"),
        ("no row 7dc6e5af-0776-4f37-8f16-5767f5f9471f", "no row 00000000-1111-2222-3333-444444444444"),
        ("no row 7DC6E5AF-0776-4F37-8F16-5767F5F9471F", "no row 7dc6e5af-0776-4f37-8f16-5767f5f9471f"),
        ("task gr-0chq7m4c5k8m9n0p1q2r3s4t5u failed", "task gr-1aaaaaaaaaaaaaaaaaaaaaaaaa failed"),
        ("no key 'abc' here", "no key 'x y z' here"),
        ('no key "abc" here', 'no key "" here'),
        ("cannot open /etc/app/config.toml", "cannot open /home/me/x-1/y@2"),
        ("<Thing at 0x7f8e9c>", "<Thing at 0xdeadbeef>"),
        ("commit 4bf92f3577b34da6a3ce929d0e0e4736", "commit 0123456789abcdef"),
        ("a   b\n\tc", "a b c"),
        ("x" * 3000 + "1", "x" * 3000 + " other"),
    ],
    ids=lambda text: text[:20],
)
def test_what_differs_each_time_does_not_count(one: str, other: str) -> None:
    assert normalize(one) == normalize(other)
    assert fingerprint("t", "ValueError", one) == fingerprint("t", "ValueError", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no user", "no group"),
        ("no key 'a'", "no value 'a'"),
        ("timeout", "refused"),
        ("5 left", "5 right"),
        ("", "x"),
    ],
)
def test_what_says_something_else_counts(one: str, other: str) -> None:
    assert fingerprint("t", "ValueError", one) != fingerprint("t", "ValueError", other)


def test_task_type_class_and_frames_count() -> None:
    plain = fingerprint("t", "ValueError", "x", ["a.py:f", "a.py:g", "b.py:h"])
    assert plain == fingerprint("t", "ValueError", "x", ["a.py:f", "a.py:g", "b.py:h", "b.py:main"]), (
        "the top three"
    )
    others = {
        fingerprint("u", "ValueError", "x", ["a.py:f", "a.py:g", "b.py:h"]),
        fingerprint("t", "KeyError", "x", ["a.py:f", "a.py:g", "b.py:h"]),
        fingerprint("t", "ValueError", "x", ["a.py:f", "a.py:g", "b.py:i"]),
        fingerprint("t", "ValueError", "x"),
        fingerprint("t", "ValueErrorx", ""),
        fingerprint("tV", "alueError", "x"),
    }
    assert plain not in others
    assert len(others) == 6


def test_it_is_16_hex_digits_and_the_same_tomorrow() -> None:
    """It is kept in Postgres: another way to compute it would split what belongs together."""
    assert fingerprint("fetch", "ValueError", "no user 17", ["a.py:f"]) == "43cd999a5d664916"


@pytest.mark.parametrize("message", ["\ud800", "\x00", "\x1f", "\U0010ffff" * 3000, "", " "])
def test_any_message_has_one(message: str) -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", fingerprint("t", "E\ud800", message, ["\ud800"]))


@pytest.mark.parametrize(
    "piece", ["/", "/a", "'", '"', "0", "1.", "a-", "https://", "f" * 7 + "-", "gr-0", " "]
)
def test_no_message_takes_long(piece: str) -> None:
    began = time.process_time()
    normalize(piece * 1_000_000)
    assert time.process_time() - began < 0.5
