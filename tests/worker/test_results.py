"""A result in the event of its task: what fits is there, what does not is named as left out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from grns.model import envelope
from grns.model.events import TaskCompleted, read
from grns.model.json import dumps, loads_stored
from grns.model.outcome import Outcome, Verb
from grns.postgres.database import Database
from grns.settings import load
from grns.worker.finishes import Finishes
from tests.support.harness import submit
from tests.support.store import cancel, claim, ending, log_of, row_of

_LARGEST = "x" * (4096 - 2)  # with its quotes


def nested(depth: int) -> list[Any]:
    """Return a list of lists."""
    return [nested(depth - 1)] if depth > 1 else []


async def completed(database: Database, result: Any) -> tuple[str, dict[str, Any], TaskCompleted]:
    """Finish a task with a result; returns its id and its event's payload, raw and as read."""
    owner = await claim(database, (await submit(database, agent_type="worker")).id)
    wanted = replace(ending(owner), outcome=Outcome(Verb.SUCCEED, result=dumps(result)))
    assert (await Finishes(database, batch_limit=1).finish(wanted)).status == "succeeded"
    row = (await log_of(database, owner.id))[-1]
    body = envelope.assemble(
        message_id=str(row["message_id"]),
        trace_id=row["trace_id"],
        causation_id=None,
        kind=row["kind"],
        emitted_at=row["created_at"],
        payload=row["payload"],
    )
    received = read(envelope.decode(body, limits=load().envelope_limits))
    assert isinstance(received, TaskCompleted)
    assert loads_stored((await row_of(database, owner.id))["result"]) == result
    return owner.id, json.loads(row["payload"]), received


@pytest.mark.parametrize(
    "result",
    [{"a": 1}, False, 0, "", [], "ä" * 2047, _LARGEST, nested(64), {"q": '"\n\\'}, [2**63 - 1, 1e300]],
)
async def test_finish_with_a_small_result_puts_it_into_the_event(shared: Database, result: Any) -> None:
    """Newcomer 8: a subscriber heard that a task had succeeded, and not of which type, nor with what."""
    task_id, payload, received = await completed(shared, result)
    assert payload["result"] == received.result == result
    assert "result_omitted" not in payload
    assert (received.task_id, received.task_type, received.agent_type) == (task_id, "noop", "worker")


async def test_finish_without_a_result_leaves_it_out_of_the_event(shared: Database) -> None:
    _, payload, received = await completed(shared, None)
    assert payload.keys().isdisjoint({"result", "result_omitted"})
    assert (received.result, received.result_omitted) == (None, False)


@pytest.mark.parametrize("result", [_LARGEST + "x", "ä" * 2048, ["x" * 200_000]])
async def test_finish_with_a_large_result_says_that_the_event_lacks_it(shared: Database, result: Any) -> None:
    """Newcomer 8: events stay small, and tell a large result from none."""
    _, payload, received = await completed(shared, result)
    assert "result" not in payload
    assert received.result_omitted
    assert received.result_ref == f"db://tasks/{received.task_id}"


async def test_cancel_names_the_type_and_the_pool_in_the_event(shared: Database) -> None:
    """Newcomer 8: all ends name them, also one of a task that never ran."""
    task_id = (await submit(shared, "noop", agent_type="scout")).id
    await cancel(shared, task_id)
    payload = json.loads((await log_of(shared, task_id))[-1]["payload"])
    assert (payload["task_type"], payload["agent_type"]) == ("noop", "scout")
