"""Whatever handlers return and raise: a running worker writes down how it ended, and goes on."""

from __future__ import annotations

import json

from grns.model.json import loads_stored
from grns.postgres.database import Database
from tests.support.bad_input import ERRORS, GOOD_DOCUMENTS, GOOD_NAMES, LONG_RESULTS, RESULTS
from tests.support.harness import Fleet, all_in, check_stories, eventually, ready, rows_of, submit

KINDS = ("coroutine", "thread")
LONGEST_MESSAGE = 4000
LONGEST_LINE = 50_000


async def test_what_handlers_do_wrong_ends_their_task_and_nothing_else(
    fleet: Fleet, database: Database
) -> None:
    fleet.start("server")
    worker = fleet.start("worker", "start", "tests.support.hostile_pool:pool", "--concurrency", "4")
    await ready(database, worker)
    cases = {
        (
            await submit(
                database, kind, agent_type="hostile", payload={"case": case.name}, max_attempts=1, priority=1
            )
        ).id: case
        for case in RESULTS + ERRORS
        for kind in KINDS
    }
    good = [(await submit(database, agent_type="hostile", priority=3)).id for _ in range(4)]

    async def have_ended() -> bool:
        rows = await rows_of(database, list(cases))
        return all(row["finished_at"] is not None for row in rows.values())

    await eventually(have_ended, within_seconds=40.0)
    rows = await rows_of(database, list(cases))
    for task_id, case in cases.items():
        row = rows[task_id]
        if case.name in LONG_RESULTS:
            assert (row["status"], row["last_error"]) == ("succeeded", None), case
            continue
        said = json.loads(row["last_error"])
        is_result = case in RESULTS
        assert row["status"] == ("failed" if is_result else "dead"), case
        assert said["class"] == case.code, case
        assert 0 <= len(said["message"]) <= LONGEST_MESSAGE, case
        assert "\x00" not in said["message"], case
        assert row["result"] is None, case
    await all_in(database, good, within_seconds=5.0)
    await check_stories(database, [*cases, *good])
    assert worker.poll() is None
    assert fleet.facts_of(worker, "task_crashed") == []
    lines = fleet.log_of(worker).splitlines()
    assert len(lines) > len(cases)
    assert max(len(line) for line in lines) < LONGEST_LINE
    assert all(line.isprintable() for line in lines)


async def test_what_is_strange_and_good_comes_back_exactly(fleet: Fleet, database: Database) -> None:
    """Through jsonb into the handler, and as its result back again."""
    fleet.start("server")
    worker = fleet.start("worker", "start", "tests.support.hostile_pool:pool")
    await ready(database, worker)
    documents = {case.name: json.loads(case.value) for case in GOOD_DOCUMENTS}
    # a payload is one level and one value itself, and so is its member
    documents["depth_64"], documents["10000_nodes"] = documents["depth_64"][0], documents["10000_nodes"][1:]
    documents |= {case.name: case.value for case in GOOD_NAMES}
    ids = {
        (await submit(database, "echo", agent_type="hostile", payload={"said": said})).id: said
        for said in documents.values()
    }
    rows = await all_in(database, list(ids), within_seconds=40.0)
    for task_id, said in ids.items():
        assert loads_stored(rows[task_id]["result"]) == said
