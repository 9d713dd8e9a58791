"""Slots: as many handlers as there are, and what has none any more is in nobody's way."""

from __future__ import annotations

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


def test_a_slot_that_is_lent_may_be_taken() -> None:
    slots = Slots(1)
    slots.take()
    slots.lend()
    assert slots.try_take()
    assert not slots.try_take(), "there is one"
    slots.take_back()
    assert slots.free == -1, "both are taken now"
    slots.give()
    assert not slots.try_take()
    slots.give()
    assert slots.try_take()


def test_no_more_are_lent_than_there_are() -> None:
    """A worker whose handlers end faster than Postgres writes has to wait at last."""
    slots = Slots(2)
    for _ in range(2):
        assert slots.try_take()
        slots.lend()
    assert [slots.try_take() for _ in range(3)] == [True, True, False]
    slots.lend()
    assert slots.free == 0
    assert not slots.try_take()


def test_what_is_held_back_cannot_be_lent() -> None:
    slots = Slots(2)
    slots.take()
    slots.hold("a test")
    slots.lend()
    assert not slots.try_take()
    slots.resume("a test")
    assert slots.free == 2


def test_each_change_of_the_free_slots_is_told() -> None:
    slots = Slots(1)
    seen: list[int] = []
    slots.on_free.append(lambda: seen.append(slots.free))
    slots.take()
    slots.begin()
    slots.lend()
    slots.take_back()
    slots.end()
    slots.hold("a test")
    slots.resume("a test")
    assert seen == [1, 1, 0, 1]


def test_handlers_run_from_their_beginning_until_their_slot_is_lent() -> None:
    slots = Slots(1)
    slots.take()
    slots.begin()
    assert slots.running == 1
    slots.lend()
    assert slots.running == 0
    slots.take_back()
    slots.end()
    assert (slots.running, slots.taken) == (0, 0)


def test_slots_ahead_are_not_free_for_others_and_held_back_with_them() -> None:
    slots = Slots(1)
    slots.ahead = 1
    slots.take()
    assert (slots.free, slots.free_ahead) == (0, 1)
    slots.hold("a test")
    assert slots.free_ahead < 1
