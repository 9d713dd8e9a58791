"""The picture of a workflow: each task behind those that it needs, many alike as one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from grns.web.graph import draw

_NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def task(name: str, *needs: str, seconds: float = 1.0, **fields: Any) -> dict[str, Any]:
    """Return a task that succeeded; its name is its id, too."""
    began = _NOW - timedelta(minutes=1)
    known = {
        "id": name, "name": name, "task_type": name.split("-")[0], "status": "succeeded", "is_last": False,
        "needs": list(needs), "started_at": began.isoformat(),
        "finished_at": (began + timedelta(seconds=seconds)).isoformat(),
    }  # fmt: skip
    return known | fields


def test_each_task_stands_behind_those_that_it_needs() -> None:
    drawn = draw([task("a"), task("b", "a"), task("c", "a"), task("d", "b", "c")], _NOW)
    assert drawn is not None
    x = {node.title: node.x for node in drawn.nodes}
    assert x["a"] < x["b"] == x["c"] < x["d"]
    assert len(drawn.lines) == 4


def test_many_tasks_alike_are_one_node_with_their_counts() -> None:
    pages = [task(f"page-{n}", "list", status="failed" if n < 2 else "succeeded") for n in range(300)]
    drawn = draw([task("list"), *pages, task("report", *(page["id"] for page in pages))], _NOW)
    assert drawn is not None
    assert [node.title for node in drawn.nodes] == ["list", "page × 300", "report"]
    (many,) = [node for node in drawn.nodes if node.path is None]
    assert (many.status, many.says) == ("failed", "298 succeeded, 2 failed")
    assert len(drawn.lines) == 2


def test_way_that_took_longest_is_critical() -> None:
    drawn = draw(
        [task("a"), task("slow", "a", seconds=20), task("fast", "a"), task("d", "slow", "fast")], _NOW
    )
    assert drawn is not None
    assert {node.title for node in drawn.nodes if node.is_critical} == {"a", "slow", "d"}
    assert sum(is_critical for _, is_critical in drawn.lines) == 2


def test_last_tasks_stand_behind_all_others_and_unknown_needs_are_left_out() -> None:
    last = task("notify", "wf-1", is_last=True, started_at=None, finished_at=None, status="waiting")
    drawn = draw([task("a", "gr-elsewhere"), task("b", "a"), last], _NOW)
    assert drawn is not None
    x = {node.title: node.x for node in drawn.nodes}
    assert x["a"] < x["b"] < x["notify"]
    assert len(drawn.lines) == 2, "b needs a already"
    assert draw([], _NOW) is None


def test_last_task_that_needs_a_task_besides_stands_behind_the_ends_too() -> None:
    last = task("notify", "a", "wf-1", is_last=True)
    alone = task("alarm", "notify", is_last=True)
    drawn = draw([task("a"), task("b", "a"), last, alone], _NOW)
    assert drawn is not None
    x = {node.title: node.x for node in drawn.nodes}
    assert x["b"] < x["notify"] < x["alarm"]
    assert len(drawn.lines) == 4


def test_line_past_a_critical_task_is_a_thin_one_under_the_others() -> None:
    drawn = draw([task("a"), task("b", "a"), task("c", "a", "b")], _NOW)
    assert drawn is not None
    assert [is_critical for _, is_critical in drawn.lines] == [False, True, True]
    assert len({path for path, _ in drawn.lines}) == 3


def test_critical_task_that_took_no_time_is_thick_and_one_that_has_not_run_is_not() -> None:
    waiting = task("d", "c", started_at=None, finished_at=None, status="waiting")
    drawn = draw([task("a"), task("b", "a", seconds=0), task("c", "b", seconds=0), waiting], _NOW)
    assert drawn is not None
    assert {node.title for node in drawn.nodes if node.is_critical} == {"a", "b", "c"}


def test_of_tasks_that_took_equally_long_the_first_is_critical() -> None:
    parts = [task(f"part{letter}", "list") for letter in "hgfedcba"]
    drawn = draw([task("list"), *parts, task("end", *(part["id"] for part in parts))], _NOW)
    assert drawn is not None
    assert {node.title for node in drawn.nodes if node.is_critical} == {"list", "parth", "end"}
