"""Slots: as many handlers as there are, and what has none any more is in nobody's way."""

from __future__ import annotations

from contextlib import ExitStack

from grns.worker.slots import Slots


def test_no_more_are_taken_than_there_are() -> None:
    slots = Slots(2)
    assert [slots.try_take() for _ in range(3)] == [True, True, False]
    slots.take()
    assert (slots.taken, slots.free) == (3, -1), "the few that must not wait"
    slots.give()
    assert not slots.try_take()
    slots.give()
    assert slots.try_take()


def test_what_is_lent_somebody_else_may_take() -> None:
    slots = Slots(1)
    slots.take()
    with slots.lent():
        assert slots.try_take()
        assert not slots.try_take(), "there is one"
    assert slots.free == -1, "both are taken now"
    slots.give()
    assert not slots.try_take()
    slots.give()
    assert slots.try_take()


def test_no_more_are_lent_than_there_are() -> None:
    """Who ends faster than Postgres writes has to wait at last."""
    slots = Slots(2)
    with ExitStack() as ends:
        for _ in range(2):
            assert slots.try_take()
            ends.enter_context(slots.lent())
        assert [slots.try_take() for _ in range(3)] == [True, True, False]
        ends.enter_context(slots.lent())
        assert slots.free == 0
        assert not slots.try_take()


def test_what_is_held_back_cannot_be_lent() -> None:
    slots = Slots(2)
    slots.take()
    slots.hold("a test")
    with slots.lent():
        assert not slots.try_take()
        slots.resume("a test")
        assert slots.free == 2


def test_whoever_waits_for_a_slot_is_told_of_each() -> None:
    slots = Slots(1)
    seen: list[int] = []
    slots.on_free.append(lambda: seen.append(slots.free))
    slots.take()
    with slots.lent():
        pass
    slots.give()
    slots.hold("a test")
    slots.resume("a test")
    assert seen == [1, 1, 0, 1]
