"""`grns admin bench`: measure grns on your own Postgres and NATS."""

from __future__ import annotations

import asyncio
import os
import platform
from typing import Any

import click

from grns.bootstrap.app import VERSION
from grns.cli.group import Command
from grns.cli.output import Output, fields, output_option, text
from grns.cli.session import impatient_settings
from grns.dev.bench.plan import Plan, Result
from grns.dev.bench.run import run
from grns.settings import Settings


@click.command(
    cls=Command, examples=["grns admin bench", "grns admin bench --tasks 50000 --concurrency 200 -o json"]
)
@click.option(
    "--tasks",
    type=click.IntRange(100, 1_000_000),
    default=10_000,
    show_default=True,
    help="Number of tasks.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Maximum concurrent handlers.",
)
@click.option(
    "--payload-bytes",
    type=click.IntRange(min=16),
    default=200,
    show_default=True,
    help="Payload size in bytes.",
)
@output_option
def bench(tasks: int, concurrency: int, payload_bytes: int, out: Output) -> None:
    """Measure grns on the Postgres and NATS that the settings name, with tasks that do nothing.

    Your own data is not touched. The benchmark uses a database of its own on the same server,
    grns_bench_<random> (the role needs CREATEDB), and streams of its own on the same NATS,
    grns_bench_<random>_GRNS_CMD, _EVT and _DLQ. It removes them at the end, also after Ctrl-C; the next run
    removes those of a killed run. Daemons and worker run on this machine. The servers are busy meanwhile.
    """
    settings = impatient_settings()
    try:
        result = asyncio.run(run(settings, Plan(tasks, concurrency, payload_bytes)))
    except asyncio.CancelledError as error:  # it was asked to end, and has removed everything
        raise click.Abort from error
    out.record(record(result, settings), lambda: show(result))


def record(result: Result, settings: Settings) -> dict[str, Any]:
    """Return what was measured, for programs."""
    plan, figures, distance = result.plan, result.figures, result.distance
    return {
        "tasks": plan.tasks,
        "concurrency": plan.concurrency,
        "payload_bytes": plan.payload_bytes,
        "submit_in_bulk_per_second": round(figures.in_bulk),
        "submit_one_by_one_per_second": round(figures.one_by_one),
        "drain_per_second": round(figures.drain),
        "whole_way_per_second": round(figures.whole_way),
        "submit_to_start_p50_ms": _milliseconds(figures.start.p50),
        "submit_to_start_p99_ms": _milliseconds(figures.start.p99),
        "postgres_round_trip_ms": _milliseconds(distance.postgres),
        "postgres_commit_ms": _milliseconds(distance.commit),
        "nats_round_trip_ms": _milliseconds(distance.nats),
        "nats_store_ms": _milliseconds(distance.stored),
        "postgres": settings.database_host(),
        "nats": settings.nats_hosts(),
        "grns": VERSION,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def show(result: Result) -> None:
    """Write what was measured, for people."""
    plan, figures, distance = result.plan, result.figures, result.distance
    text(
        f"{plan.tasks:,} tasks that do nothing, of {plan.payload_bytes:,} bytes;"
        f" one worker with {plan.concurrency:,} slots"
    )
    postgres, commit, nats, stored = map(
        _took, (distance.postgres, distance.commit, distance.nats, distance.stored)
    )
    fields(
        [
            ("submit, in bulk", _rate(figures.in_bulk)),
            ("submit, one by one", _rate(figures.one_by_one)),
            ("drain: claimed, run, finished", _rate(figures.drain)),
            ("whole way: submitted, run, every event published", _rate(figures.whole_way)),
            ("submit → handler's start, idle, p50", _took(figures.start.p50)),
            ("submit → handler's start, idle, p99", _took(figures.start.p99)),
            ("Postgres: there and back", postgres),
            ("Postgres: one commit", commit),
            ("NATS: there and back", nats),
            ("NATS: one message stored", stored),
        ]
    )
    text(
        f"one commit takes {commit} here, {postgres} of that the way to Postgres: a client that awaits each"
        f" submission makes {1 / max(distance.commit, 1e-9):,.0f} a second at most, and a task starts after"
        " two commits, its submission and its claim; many at a time share theirs"
    )
    text(
        f"one message takes {stored} to be stored, {nats} of that the way to NATS: the relay does not wait"
        " for one before it sends the next"
    )


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f} tasks/s"


def _took(seconds: float) -> str:
    milliseconds = seconds * 1000
    return f"{milliseconds:.1f} ms" if milliseconds >= 1 else f"{milliseconds:.2f} ms"


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
