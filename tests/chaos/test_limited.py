"""The checker of limits in the small: logs of a few rows that tell of one bug each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos.checker import Event
from tests.chaos.limits import LIMITED, Limited, tenant_of

Row = tuple[int, str, str, float]  # number in the log, kind, reason, time
_SOUND: Sequence[Row] = (
    (1, "waiting", "", 0.0),
    (3, "queued", "admitted", 1.0),
    (5, "claimed", "", 2.0),
    (7, "retry_scheduled", "", 3.0),
    (9, "waiting", "", 4.0),
    (11, "queued", "admitted", 5.0),
    (13, "claimed", "", 6.0),
    (15, "lease_expired", "", 7.0),
    (17, "claimed", "", 8.0),
    (19, "completed", "", 9.0),
)


def _judge(*logs: Sequence[Row], tenants: Sequence[int] = (), keys: Sequence[str] = ()) -> list[str]:
    """Judge tasks with these logs, of these tenants, by default all of one."""
    limited, tasks, log = Limited(), {}, {}
    for place, rows in enumerate(logs):
        number = tenants[place] if tenants else 0
        limited.keys[f"t{place}"] = list(keys) or ["storm", f"storm-tenant:{tenant_of(number)}"]
        tasks[f"t{place}"] = {"task_type": LIMITED, "number": str(number)}
        log[f"t{place}"] = [
            Event(version, f"evt.task.{kind}", 1, at, None, reason=reason, seq=seq)
            for version, (seq, kind, reason, at) in enumerate(rows, 1)
        ]
    return list(limited.judge(tasks, log))


def test_what_is_sound_is_not_found() -> None:
    assert not _judge(_SOUND)
    assert not _judge(_SOUND, [(seq + 19, kind, reason, at) for seq, kind, reason, at in _SOUND])


def test_two_of_one_tenant_at_once() -> None:
    (found,) = _judge(_SOUND, [(2, "waiting", "", 0.0), (16, "queued", "admitted", 7.5)])
    assert "2 of storm-tenant:t0 were queued or running at 16, with t1" in found


def test_one_of_each_tenant_at_once() -> None:
    rows = [[(number, "queued", "admitted", 1.0)] for number in range(4)]
    assert not _judge(*rows, tenants=range(4))
    (found,) = _judge(*rows, [(9, "queued", "admitted", 1.0)], tenants=range(5))
    assert "5 of storm were" in found


@pytest.mark.parametrize("reason", ["new_task", "retry_due", "redriven"])
def test_queued_by_another(reason: str) -> None:
    (found,) = _judge([(1, "queued", reason, 0.0)])
    assert "not admitted" in found


def test_more_in_a_time_than_the_rate_allows() -> None:
    def begun(at: Sequence[float]) -> list[str]:
        return _judge(
            *(
                [
                    (3 * number, "queued", "admitted", time),
                    (3 * number + 1, "claimed", "", time),
                    (3 * number + 2, "completed", "", time),
                ]
                for number, time in enumerate(at)
            )
        )

    assert not begun([1.0] * 11)
    assert begun([1.0] * 12)
    assert not begun([1.0] * 10 + [1.0 + number / 30 for number in range(1, 60)])
    assert begun([1.0] * 10 + [1.0 + number / 35 for number in range(1, 60)])


def test_a_task_without_its_keys() -> None:
    (found,) = _judge(_SOUND, keys=["storm"])
    assert "was to fall under" in found
