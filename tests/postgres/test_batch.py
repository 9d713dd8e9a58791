"""Batches: what waits together goes together, and each caller gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from grns.errors import InvalidInputError, UnavailableError
from grns.postgres.batch import Batch


class Sender:
    """Answers with the double, refuses what it is told to, and notes what came together."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.unstorable: set[int] = set()
        self.breaks: BaseException | None = None
        self.is_sending = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def send(self, items: Sequence[int]) -> Sequence[int]:
        """Answer one batch."""
        self.sent.append(list(items))
        self.is_sending.set()
        await self.may_answer.wait()
        if self.breaks is not None:
            error, self.breaks = self.breaks, None
            raise error
        if self.unstorable & set(items):
            raise InvalidInputError("refused_by_database", "one of these cannot be stored")
        return [2 * item for item in items]


def batch_of(sender: Sender, limit: int = 100) -> Batch[int, int]:
    """Return a batch in front of a sender."""
    return Batch(sender.send, limit=limit)


async def test_one_alone_is_sent_at_once() -> None:
    sender = Sender()
    assert await batch_of(sender).ask(21) == 42
    assert sender.sent == [[21]]


async def test_what_waits_while_a_batch_is_under_way_is_the_next_one() -> None:
    sender = Sender()
    sender.may_answer.clear()
    batch = batch_of(sender, limit=4)
    first = asyncio.create_task(batch.ask(0))
    await sender.is_sending.wait()
    others = [asyncio.create_task(batch.ask(number)) for number in range(1, 7)]
    await asyncio.sleep(0)
    sender.may_answer.set()
    assert await asyncio.gather(first, *others) == [0, 2, 4, 6, 8, 10, 12]
    assert sender.sent == [[0], [1, 2, 3, 4], [5, 6]]


@pytest.mark.parametrize("unstorable", [{0}, {7}, {3, 4}, {0, 1, 2, 3, 4, 5, 6, 7}], ids=str)
async def test_a_batch_is_halved_until_the_bad_ones_stand_alone(unstorable: set[int]) -> None:
    sender = Sender()
    sender.unstorable = unstorable
    batch = batch_of(sender)
    answers = await asyncio.gather(*(batch.ask(number) for number in range(8)), return_exceptions=True)
    for number, answer in enumerate(answers):
        assert isinstance(answer, InvalidInputError) if number in unstorable else answer == 2 * number
    assert len(sender.sent) <= 15
    assert [len(items) for items in sender.sent[:4]] == [8, 4, 2, 1] if unstorable == {0} else True
    assert await batch.ask(50) == 100, "the next ones are not concerned"


@pytest.mark.parametrize("error", [UnavailableError("gone"), ValueError("a bug")], ids=repr)
async def test_what_breaks_is_told_to_all_of_the_batch_and_to_nobody_else(error: Exception) -> None:
    sender = Sender()
    sender.breaks = error
    batch = batch_of(sender, limit=3)
    answers = await asyncio.gather(*(batch.ask(number) for number in range(5)), return_exceptions=True)
    assert answers == [error, error, error, 6, 8]
    assert await batch.ask(5) == 10


async def test_a_caller_that_has_gone_does_not_disturb_the_others() -> None:
    sender = Sender()
    sender.may_answer.clear()
    batch = batch_of(sender)
    asked = [asyncio.create_task(batch.ask(number)) for number in range(3)]
    await sender.is_sending.wait()
    asked[1].cancel()
    await asyncio.wait([asked[1]])
    sender.may_answer.set()
    assert [await asked[0], await asked[2]] == [0, 4]
    assert asked[1].cancelled()


async def test_no_caller_waits_for_an_answer_that_cannot_come() -> None:
    """The sender is cancelled at the end of a process."""
    sender = Sender()
    sender.breaks = asyncio.CancelledError()
    batch = batch_of(sender)
    answers = await asyncio.gather(batch.ask(1), batch.ask(2), return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncio.CancelledError] * 2
    assert await batch.ask(3) == 6
