"""`make bench`: submit, the whole way, and latency, with one worker process and one of all daemons."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import grns
from grns.local import LocalNats, LocalPostgres
from grns.store import migrate
from tests.harness import Fleet, eventually, manage

CONCURRENCY = 200
PAYLOAD = {"filling": "x" * 182}  # 200 bytes of JSON
SINGLE_SUBMITS = 500
LATENCY_SAMPLES = 200
LIMIT_SECONDS = 300.0


async def measure_submit(client: grns.Client, rows: int) -> dict[str, float]:
    """Return tasks/s for submitting in bulk and one by one (each awaited before the next)."""
    began = time.perf_counter()
    await client.submit_many({"task_type": "noop", "payload": PAYLOAD} for _ in range(rows))
    bulk = rows / (time.perf_counter() - began)
    began = time.perf_counter()
    for _ in range(SINGLE_SUBMITS):
        await client.submit("noop", PAYLOAD)
    return {"submit, in bulk": bulk, "submit, one by one": SINGLE_SUBMITS / (time.perf_counter() - began)}


async def measure_whole_way(
    client: grns.Client, connection: asyncpg.Connection, rows: int
) -> dict[str, float]:
    """Return tasks/s from the first submit until all are finished and every event is relayed."""
    began = time.perf_counter()
    await client.submit_many({"task_type": "noop", "payload": PAYLOAD} for _ in range(rows))
    await _drain(connection)
    finished = time.perf_counter() - began
    await _relayed(connection)
    return {"submitted and finished": rows / finished, "whole way": rows / (time.perf_counter() - began)}


async def measure_floor(
    client: grns.Client, connection: asyncpg.Connection, broker: LocalNats, rows: int
) -> dict[str, float]:
    """Return tasks/s from the first submit until all are finished, with the broker away all the time."""
    await asyncio.to_thread(broker.kill)
    began = time.perf_counter()
    await client.submit_many({"task_type": "noop", "payload": PAYLOAD} for _ in range(rows))
    await _drain(connection)
    seconds = time.perf_counter() - began
    await asyncio.to_thread(broker.start)
    # What the next round measures must not share the machine with what this one has left to do.
    await _relayed(connection)
    await _all(lambda: _has_no_commands(broker.url))
    return {"from Postgres alone": rows / seconds}


async def measure_latency(client: grns.Client) -> dict[str, float]:
    """Return milliseconds from submit to handler start on an idle system."""
    waits = []
    for _ in range(LATENCY_SAMPLES):
        began = time.time()
        submitted = await client.submit("clock")
        task = await client.wait(submitted.id, timeout_seconds=30)
        waits.append((task.result - began) * 1000)
        await asyncio.sleep(0.01)
    waits.sort()
    return {
        "submit → start, p50": statistics.median(waits),
        "submit → start, p99": waits[int(len(waits) * 0.99)],
    }


async def _all(look: Callable[[], Awaitable[object]]) -> None:
    await eventually(look, within_seconds=LIMIT_SECONDS, every=0.05)


async def _relayed(connection: asyncpg.Connection) -> None:
    """Wait until the broker has every message."""
    await _all(
        lambda: connection.fetchval(
            "select c.low >= s.last_value from grns.relay_cursor c, grns.events_seq s"
        )
    )


async def _has_no_commands(nats_url: str) -> bool:
    """Tell whether workers have settled all commands."""
    return not (await manage(nats_url, "STREAM.INFO.GRNS_CMD"))["state"]["messages"]


async def run(rows: int, rounds: int) -> dict[str, float]:
    """Run everything, the throughput `rounds` times; return the medians."""
    with tempfile.TemporaryDirectory(prefix="grns-bench-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # noqa: ASYNC240
        with LocalPostgres(directory / "postgres") as postgres, LocalNats(directory / "nats") as broker:
            await migrate.upgrade(postgres.url)
            environment = {
                "GRNS_DATABASE_URL": postgres.url,
                "GRNS_NATS_URL": broker.url,
                "GRNS_LOG_LEVEL": "error",
                "PYTHONPATH": os.getcwd(),
            }
            fleet = Fleet(directory, environment)
            try:
                return await _measure(fleet, postgres.url, broker, rows, rounds)
            finally:
                fleet.end()


async def _measure(
    fleet: Fleet, database_url: str, broker: LocalNats, rows: int, rounds: int
) -> dict[str, float]:
    connection = await asyncpg.connect(database_url)
    figures: dict[str, list[float]] = {}
    async with grns.connect(database_url=database_url, nats_url=broker.url) as client:
        for name, figure in (await measure_submit(client, rows)).items():
            figures.setdefault(name, []).append(figure)
        fleet.start("server")
        fleet.start("worker", "tests.bench.pools:pool", "--concurrency", str(CONCURRENCY))
        with Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("measuring", total=rounds + 2)
            await _drain(connection)
            progress.advance(bar)
            for _ in range(rounds):
                found = await measure_whole_way(client, connection, rows)
                found |= await measure_floor(client, connection, broker, rows)
                for name, figure in found.items():
                    figures.setdefault(name, []).append(figure)
                progress.advance(bar)
            for name, figure in (await measure_latency(client)).items():
                figures.setdefault(name, []).append(figure)
    await connection.close()
    return {name: statistics.median(several) for name, several in figures.items()}


async def _drain(connection: asyncpg.Connection) -> None:
    """Wait until all tasks have ended; the cheap question first, so that asking costs nothing measurable."""
    await _all(
        lambda: connection.fetchval(
            "select case when exists (select from grns.tasks where queued_at is not null) then false"
            " else not exists (select from grns.tasks where finished_at is null) end"
        )
    )


def show(figures: dict[str, float], rows: int) -> None:
    """Print the figures as a table."""
    table = Table(title=f"{rows:,} no-op tasks of 200 bytes, one worker with {CONCURRENCY} slots")
    table.add_column("what")
    table.add_column("figure", justify="right")
    for name, figure in figures.items():
        said = f"{figure:.1f} ms" if "→" in name else f"{figure:,.0f} tasks/s"
        if name == "from Postgres alone":
            said += f" ({figure / figures['submitted and finished']:.0%})"
        table.add_row(name, said)
    Console().print(table)
    Console().print(f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}")


def main() -> None:
    """Read the arguments, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="tasks per round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    figures = asyncio.run(run(arguments.rows, arguments.rounds))
    show(figures, arguments.rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


main()
