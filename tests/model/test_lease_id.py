"""Lease ids cannot be told from the ids that are public."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from grns.model.task import random_uuid

_WORDS, _FEEDBACK = 624, 397
_SHOWN = 320  # ids: with 122 of 128 bits each they hold more than the 19,968 bits of the generator's state
_MASK = ~((0xF << 76) | (0x3 << 62))
_VERSION_BITS = (0x4 << 76) | (0x2 << 62)
_CONSTANT = 1 << (32 * _WORDS)
_FRAME = frozenset((*range(76, 80), 62, 63))


def _from_mersenne_twister() -> UUID:
    """Return an id as an earlier version of grns made it."""
    return UUID(int=random.getrandbits(128) & _MASK | _VERSION_BITS)


class _Twister:
    """MT19937 over GF(2): each bit of its state is a set (an int) of unknowns."""

    def __init__(self) -> None:
        self._state = [[1 << (32 * word + bit) for bit in range(32)] for word in range(_WORDS)]
        self._place = _WORDS

    def next_word(self) -> list[int]:
        """Return the 32 bits of the next output, the lowest first, as sets of unknowns."""
        if self._place == _WORDS:
            self._twist()
        word = list(self._state[self._place])
        self._place += 1
        word = _xor(word, _right(word, 11))
        word = _xor(word, _and(_left(word, 7), 0x9D2C5680))
        word = _xor(word, _and(_left(word, 15), 0xEFC60000))
        return _xor(word, _right(word, 18))

    def _twist(self) -> None:
        state, self._place = self._state, 0
        for place in range(_WORDS):
            joined = state[(place + 1) % _WORDS][:31] + state[place][31:]
            odd, half = joined[0], _right(joined, 1)
            half = [bits ^ (odd if 0x9908B0DF >> bit & 1 else 0) for bit, bits in enumerate(half)]
            state[place] = _xor(state[(place + _FEEDBACK) % _WORDS], half)


def _xor(one: list[int], other: list[int]) -> list[int]:
    return [a ^ b for a, b in zip(one, other, strict=True)]


def _right(word: list[int], by: int) -> list[int]:
    return word[by:] + [0] * by


def _left(word: list[int], by: int) -> list[int]:
    return [0] * by + word[:-by]


def _and(word: list[int], mask: int) -> list[int]:
    return [bits if mask >> bit & 1 else 0 for bit, bits in enumerate(word)]


def _added(solved: dict[int, int], row: int) -> bool:
    """Add an equation to those that are known, each by the unknown that it leads; False: a contradiction."""
    while row & (_CONSTANT - 1):
        lead = (row & -row).bit_length() - 1
        if lead not in solved:
            solved[lead] = row
            return True
        row ^= solved[lead]
    return not row


def _state(solved: dict[int, int]) -> int:
    state = 0
    for lead in sorted(solved, reverse=True):
        row = solved[lead]
        known = (row & state & ~(1 << lead)).bit_count() & 1
        state |= (known ^ bool(row & _CONSTANT)) << lead
    return state


def _bits(twister: _Twister) -> list[int]:
    """Return the 128 bits of the next id, the lowest first, as sets of unknowns."""
    return [bits for _ in range(4) for bits in twister.next_word()]


def _predicted(shown: list[UUID]) -> UUID | None:
    """Return the id that follows those that were shown, if a Mersenne Twister made them."""
    twister, solved = _Twister(), dict[int, int]()
    for one in shown:
        for place, unknowns in enumerate(_bits(twister)):
            row = unknowns ^ (_CONSTANT if one.int >> place & 1 else 0)
            if place not in _FRAME and not _added(solved, row):
                return None
    state = _state(solved)
    number = sum(((bits & state).bit_count() & 1) << place for place, bits in enumerate(_bits(twister)))
    return UUID(int=number & _MASK | _VERSION_BITS)


@pytest.mark.parametrize(("make", "is_predictable"), [(_from_mersenne_twister, True), (random_uuid, False)])
def test_lease_id_cannot_be_predicted_from_published_event_ids(
    make: Callable[[], UUID], is_predictable: bool
) -> None:
    """H1: the same attack tells the next id of Python's generator, and none of ours."""
    shown = [make() for _ in range(_SHOWN)]
    assert (_predicted(shown) == make()) is is_predictable


def test_random_uuid_is_a_version_4_uuid_and_never_repeats() -> None:
    ids = [random_uuid() for _ in range(10_000)]
    assert len(set(ids)) == len(ids)
    assert all((one.version, one.variant) == (4, UUID(int=_VERSION_BITS).variant) for one in ids)


def test_random_uuid_in_threads_never_repeats() -> None:
    with ThreadPoolExecutor(4) as threads:
        parts = threads.map(lambda _: [random_uuid() for _ in range(5_000)], range(8))
    ids = [one for part in parts for one in part]
    assert len(set(ids)) == len(ids)


def test_random_uuid_after_a_fork_is_not_the_parents() -> None:
    random_uuid()
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, random_uuid().bytes)
        os._exit(0)
    os.waitpid(child, 0)
    theirs = UUID(bytes=os.read(reader, 16))
    os.close(reader)
    os.close(writer)
    assert theirs not in [random_uuid() for _ in range(256)]
