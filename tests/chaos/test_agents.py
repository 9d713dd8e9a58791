"""What the checker says of agents, in the small: who ran what, and how many tasks one had at a time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.agents import AGENTS, BY_NAME, MOST_OVER_HTTP, Routed, draw_route, route_of
from tests.chaos.checker import Event
from tests.chaos.harm import ORDER, Harms
from tests.chaos.http_worker import AGENT
from tests.chaos.journal import Journal


@pytest.mark.parametrize(
    ("name", "route", "may"),
    [
        ("bob", "", True),
        ("bob", "a:bob", True),
        ("bob", "a:ada", False),
        ("bob", "c:words", True),
        ("bob", "c:sums,words", False),
        ("ada", "c:sums,words", True),
    ],
)
def test_which_tasks_an_agent_may_run(name: str, route: str, may: bool, tmp_path: Path) -> None:
    Journal(tmp_path / "effects-1.jsonl").note("begin", task="t", agent="life", named=name)
    found = list(Routed().judge(tmp_path, {"t": {"route": route}}, {}))
    assert found == ([] if may else [f"t is for {route}, and {name} ran it"])


def test_what_is_drawn_can_be_run_by_an_agent_of_the_pool() -> None:
    chance = random.Random(1)
    drawn = [(pool, route_of(draw_route(pool, chance))) for pool in ("worker", "scout") * 500]
    assert {route for _, route in drawn} > {"", "a:bob", "c:sums,words"}
    for pool, route in drawn:
        assert any(one.pool == pool and one.may_run(route) for one in AGENTS)


@pytest.mark.parametrize("end", ["completed", "lease_expired", None])
def test_an_agent_over_http_has_no_more_tasks_than_it_may(end: str | None, tmp_path: Path) -> None:
    journal, log = Journal(tmp_path / "effects-1.jsonl"), {}
    assert BY_NAME[AGENT].most == MOST_OVER_HTTP
    for number in range(MOST_OVER_HTTP + 1):
        journal.note("begin", task=f"t{number}", agent="life", named=AGENT)
        log[f"t{number}"] = [Event(1, "evt.task.claimed", 1, 0.0, "life", seq=10 * number)]
    if end is not None:
        log["t0"].append(Event(2, f"evt.task.{end}", 1, 0.0, None, seq=5))
    found = list(Routed().judge(tmp_path, {}, log))
    assert found == ([] if end else [f"{AGENT} has 9 tasks at seq 80, the last is t8"])


def test_an_order_to_stop_explains_what_is_lost_until_its_process_has_ended() -> None:
    harms = Harms()
    for note in (
        {"what": "start", "at": 0.0, "seat": "worker-2", "pid": 7},
        {"what": "hit", "fault": ORDER, "whom": "worker-2", "from": 10.0, "until": 10.0},
        {"what": "start", "at": 30.0, "seat": "worker-2", "pid": 8},
    ):
        harms.read(note)
    assert harms.explain_loss("t", 7, 24.0, 25.0), "frozen meanwhile, it has not heard of it"
    assert harms.was_ordered(7, 24.0, 25.0)
    assert not harms.explain_loss("t", 7, 1.0, 5.0)
    assert not harms.explain_loss("t", 8, 40.0, 44.0), "the next life is not meant"
