"""What `make recovery` makes of what it measures."""

from __future__ import annotations

import asyncpg
import pytest
from rich.console import Console

from grns.maintenance.reaper import reap
from grns.postgres.database import Database
from tests.chaos.recovery import Measured, show
from tests.chaos.trials import FELT, Felt, Field, Trial, TrialFailed, since_release
from tests.support.harness import submit
from tests.support.store import claim, lapse, release


async def _strike(_field: Field) -> Felt:
    raise NotImplementedError


_TRIAL = Trial("something", _strike, 2.0)


@pytest.mark.parametrize(
    ("times", "failures", "is_good"),
    [
        ([0.1, 1.9], [], True),
        ([0.1, 2.1], [], False),
        ([0.1, 1.9], ["something else happened"], False),
        ([], [], False),
    ],
)
def test_a_trial_is_good_where_each_fault_was_recovered_from_in_time(
    times: list[float], failures: list[str], is_good: bool
) -> None:
    one = Measured(_TRIAL, faults=2, failures=failures)
    for seconds in times:
        one.add({FELT: [seconds]})
    console = Console(record=True, width=110, quiet=True)
    assert show(console, [one]) is is_good
    result = one.result()
    assert (result["bound"], result["faults"], result["failures"]) == (2.0, 2, failures)


async def test_what_was_released_is_told_from_what_was_reaped(database: Database, database_url: str) -> None:
    released, reaped = (await submit(database)).id, (await submit(database)).id
    await release(database, await claim(database, released))
    await claim(database, reaped)
    await lapse(database, reaped)
    assert [row["id"] for row in await reap(database, 10, None)] == [reaped]
    await claim(database, released)
    await claim(database, reaped)
    connection = await asyncpg.connect(database_url)
    try:
        (seconds,) = await since_release(connection, [released])
        assert 0 <= seconds < 60
        with pytest.raises(TrialFailed, match="lease_expired"):
            await since_release(connection, [released, reaped])
    finally:
        await connection.close()
