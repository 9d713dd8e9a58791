"""The table: tasks over weeks, their log, and what the product itself makes of it.

Tasks and log are written by statements of our own, as those of the product would have left them. Counts,
minutes and issues are the work of its counter; then its inspection looks at all there is, and must find
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg

from grns.access.workspaces import create_workspace
from grns.dead_letters import store as burial
from grns.dead_letters.store import RejectedMessage
from grns.maintenance.consistency import ConsistencyCheck
from grns.model import subjects
from grns.worker import registry as agent
from grns.worker.claims import Claimant
from tests.bench.interfaces.life import AGENTS_OF_A_POOL, COLUMNS, KINDS, OURS, THEIRS, Lives, agent_of
from tests.bench.interfaces.size import Sizes
from tests.bench.stage import Stage

ACTOR = "cli:bench@desk"
_SQL = Path(__file__).parent / "sql"
_PATIENCE_SECONDS = 10 * 86_400.0
_LEASE_SECONDS = 86_400.0
_COUNTED = """
    select c.low, s.last_value as last from grns.count_cursor c, grns.events_seq s
"""
_MAINTAINED = (
    "tasks",
    "events",
    "issues",
    "task_minutes",
    "task_counts",
    "dead_letters",
    "webhook_deliveries",
)
_AT_ONCE = 500
# A task has five rows of the log, and 2,000,000 of them are a partition.
_ROWS_OF_A_PARTITION = 400_000

# What is under way, how far that is, and of how much.
Tell = Callable[[str, float, float], None]


def sql(name: str) -> str:
    """Return one of this room's statements."""
    return (_SQL / f"{name}.sql").read_text(encoding="utf-8")


async def fill(stage: Stage, sizes: Sizes, tell: Tell) -> None:
    """Fill an empty database. Nothing of it is due or loses its lease within a day."""
    await _register(stage)
    await write(stage.connection, sizes, tell)
    await create_workspace(stage.database, THEIRS, actor=ACTOR)  # it is in the log, which has an order
    await _bury(stage, sizes)
    await stage.connection.execute(sql("settle_log"))
    await _count(stage, tell)
    for number, name in enumerate(_MAINTAINED):
        tell("vacuum and analyze", number, len(_MAINTAINED))
        await stage.connection.execute(f"vacuum analyze grns.{name}")
    await stage.connection.execute("checkpoint")


async def inspected(stage: Stage, sizes: Sizes, tell: Tell) -> ConsistencyCheck:
    """Hold all tasks against the log, as `grns admin verify` does."""
    inspection = ConsistencyCheck(stage.database, stuck_after_seconds=_PATIENCE_SECONDS)
    last = await stage.last_seq()
    await inspection.look_at_all(
        lambda: tell(
            "looking for what is violated", inspection.tasks + inspection.log_rows, sizes.rows + last
        )
    )
    return inspection


async def _register(stage: Stage) -> None:
    """Let there be those who have run the tasks, and run some now."""
    for workspace in (OURS, THEIRS):
        for task_type, agent_type, _ in KINDS:
            for number in range(AGENTS_OF_A_POOL):
                claimant = Claimant(
                    agent_id=agent_of(workspace, agent_type, number), workspace=workspace,
                    agent_type=agent_type, handled={task_type: 3}, lease_seconds=_LEASE_SECONDS,
                )  # fmt: skip
                version = f"1.{number % 3}.0"
                await agent.register(
                    stage.database, claimant, concurrency=100, version=version, host=f"host-{number}"
                )


async def write(connection: asyncpg.Connection, sizes: Sizes, tell: Tell) -> None:
    """Write tasks and their log, slice by slice of time: nothing of it is counted yet."""
    lives = Lives(sizes, await connection.fetchval("select now()"))
    await connection.execute(sql("make_scratch"))
    await connection.copy_records_to_table(
        "failures", schema_name="filling", records=[one.row for one in lives.failures]
    )
    for _ in range(sizes.rows // _ROWS_OF_A_PARTITION):
        await connection.execute("select grns.add_log_partition(2000000)")
    for number in range(lives.slices):
        tell("tasks and their log", number, lives.slices)
        await connection.copy_records_to_table(
            "lives", schema_name="filling", columns=COLUMNS, records=lives.slice(number)
        )
        await connection.execute(sql("make_attempts"))
        await connection.execute("create index on filling.attempts (id)")
        await connection.execute("analyze filling.lives, filling.attempts")
        async with connection.transaction():
            await connection.execute(sql("fill_tasks"))
            await connection.execute(sql("fill_events"))
        await connection.execute("drop table filling.attempts")
        await connection.execute("truncate filling.lives")
    await connection.execute("drop schema filling cascade")


async def _bury(stage: Stage, sizes: Sizes) -> None:
    """Let there be messages that belong to no task."""
    for start in range(0, sizes.letters, _AT_ONCE):
        await burial.store_rejected(
            stage.database,
            [
                RejectedMessage(
                    "bad_json", "it ends early", subjects.message(subjects.SUBMIT, OURS), "GRNS_CMD",
                    number + 1, 1, {"Nats-Msg-Id": f"message-{number}"},
                    b'{"task_type": "fetch_page", "n": %d' % number,
                )
                for number in range(start, min(start + _AT_ONCE, sizes.letters))
            ],
        )  # fmt: skip


async def _count(stage: Stage, tell: Tell) -> None:
    """Let the product's counter count the log, to its end."""
    stage.start("stats")

    async def is_counted() -> bool:
        (row,) = await stage.connection.fetch(_COUNTED)
        tell("counting the log", row["low"], row["last"])
        return bool(row["low"] >= row["last"])

    await _twice(lambda: stage.until(is_counted))
    await stage.end("stats")


async def _twice(wait: Callable[[], Awaitable[None]]) -> None:
    """What counting itself has written is counted, too."""
    await wait()
    await wait()
