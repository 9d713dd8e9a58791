"""What the checker says of mail, in the small: each kind of loss is found, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import Event
from tests.chaos.journal import Journal
from tests.chaos.post import Mailed

_ROW = {"id": "m", "to_agent": "crew-0", "from_task": None, "from_attempt": None, "is_acked": True}
_TRIED = {"what": "mails", "id": "m", "to": "crew-0"}
_SENT = {"what": "mailed", "id": "m"}
_DONE = {"what": "done", "id": "m", "agent": "crew-0"}
_OF_TASK = _ROW | {"from_task": "gr-1", "from_attempt": 1}


def event(seq: int, kind: str, attempt: int) -> Event:
    """Return an event of a task."""
    return Event(seq, f"evt.task.{kind}", attempt, 0.0, "A", seq=seq)


@pytest.mark.parametrize(
    ("row", "notes", "wrong"),
    [
        (_ROW, [_TRIED, _SENT, _DONE], None),
        (_ROW, [_TRIED, _DONE], None),  # its answer was lost
        (None, [_TRIED], None),
        (None, [_TRIED, _SENT], "is not there"),
        (_ROW, [_SENT, _DONE], "was to be for None"),
        (_ROW | {"to_agent": "crew-1"}, [_TRIED, _SENT, _DONE], "was to be for crew-0"),
        (_ROW | {"is_acked": False}, [_TRIED, _SENT, _DONE], "was never acknowledged"),
        (_ROW, [_TRIED, _SENT], "has not dealt with it"),
        (_ROW, [_TRIED, _SENT, _DONE | {"agent": "crew-1"}], "has not dealt with it"),
    ],
)
def test_what_senders_and_readers_wrote_down(
    tmp_path: Path, row: dict[str, Any] | None, notes: list[dict[str, Any]], wrong: str | None
) -> None:
    for note in notes:
        kind = "reads" if note["what"] == "done" else "mails"
        Journal(tmp_path / f"{kind}-1.jsonl").note(**note)
    mailed = Mailed(rows={} if row is None else {"m": row})
    found = list(mailed.judge(tmp_path, {}))
    assert bool(found) == (wrong is not None), found
    assert wrong is None or wrong in found[0]


@pytest.mark.parametrize(
    ("events", "attempt", "wrong"),
    [
        ([event(1, "queued", 0), event(2, "claimed", 1), event(9, "completed", 1)], 1, None),
        ([event(1, "queued", 0), event(2, "claimed", 1), event(4, "lease_expired", 1)], 1, "lease_expired"),
        ([event(1, "claimed", 1), event(3, "lease_expired", 1), event(4, "claimed", 2)], 1, "claimed"),
        ([event(6, "claimed", 1)], 1, "nothing"),
    ],
)
def test_an_attempt_writes_while_it_has_its_task(
    tmp_path: Path, events: list[Event], attempt: int, wrong: str | None
) -> None:
    for note in (_TRIED, _SENT):
        Journal(tmp_path / "mails-1.jsonl").note(**note)
    Journal(tmp_path / "reads-1.jsonl").note(**_DONE)
    mailed = Mailed(rows={"m": _OF_TASK}, sent=[(5, "gr-1", attempt, "m")])
    found = list(mailed.judge(tmp_path, {"gr-1": events}))
    assert bool(found) == (wrong is not None), found
    assert wrong is None or wrong in found[0]
    mailed.sent.clear()
    assert "is not in the log" in next(mailed.judge(tmp_path, {"gr-1": events}))
