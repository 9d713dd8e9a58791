"""The scope: it ends what runs in it as `asyncio.timeout` would, and can be cut short."""

from __future__ import annotations

import asyncio

import pytest

from grns.runtime.cancel_scope import CancelScope


async def forever(seconds: float | None, *, cuts: int = 0) -> None:
    with CancelScope(seconds) as scope:
        for _ in range(cuts):
            scope.cancel()
        await asyncio.Event().wait()


async def settle() -> int:
    """Return how many cancellations are left of this task's, once nothing of them can be under way."""
    await asyncio.sleep(0)
    current = asyncio.current_task()
    assert current is not None
    return current.cancelling()


async def test_it_ends_in_time() -> None:
    with pytest.raises(TimeoutError) as raised:
        await forever(0.01)
    assert isinstance(raised.value.__cause__, asyncio.CancelledError)
    assert await settle() == 0


async def test_what_ends_by_itself_is_left_alone() -> None:
    with CancelScope(0.001) as scope:
        pass
    await asyncio.sleep(0.01)
    scope.cancel()
    assert await settle() == 0


async def test_its_cut_comes_before_its_time() -> None:
    with pytest.raises(TimeoutError):
        await forever(60.0, cuts=2)
    assert await settle() == 0


async def test_a_cut_that_nobody_waited_for_is_forgotten() -> None:
    with CancelScope(None) as scope:
        scope.cancel()
    assert await settle() == 0


async def test_an_error_of_the_block_stays_what_it_is() -> None:
    async def break_down() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    async def work() -> None:
        with CancelScope(None) as scope:
            scope.cancel()
            await break_down()

    with pytest.raises(ZeroDivisionError):
        await work()
    assert await settle() == 0


@pytest.mark.parametrize("is_cut", [False, True], ids=["alone", "cut_as_well"])
async def test_a_task_that_others_cancel_is_cancelled(is_cut: bool) -> None:
    task = asyncio.create_task(forever(60.0, cuts=is_cut))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_outside_of_a_task_there_is_none() -> None:
    errors: list[Exception] = []

    def make() -> None:
        try:
            CancelScope(None)
        except RuntimeError as error:
            errors.append(error)

    asyncio.get_running_loop().call_soon(make)
    await asyncio.sleep(0)
    assert len(errors) == 1
