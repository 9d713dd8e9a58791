"""`make chaos SECONDS=120 SEED=… CLUSTER=3 RATE=…`: a storm, and what it did not break."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import asyncpg
from rich.console import Console
from rich.progress import BarColumn
from rich.table import Table

from grns.errors import UnavailableError
from grns.maintenance.consistency import ConsistencyCheck
from grns.postgres.database import Database
from tests.chaos.checker import Checker, Report
from tests.chaos.graphs import let_all_end
from tests.chaos.limits import put_limits
from tests.chaos.nemesis import Nemesis
from tests.chaos.schedules import pause_all, put_all
from tests.chaos.services import check_services
from tests.chaos.show import progress_on, show_violations, violations
from tests.chaos.stage import Stage
from tests.chaos.strangers import AWAY
from tests.chaos.subscriber import UNHEARD, check_subscriber
from tests.chaos.witness import Witness

_CALM_SECONDS = 3.0
# As long as it gets on: what the broker has lost at last may be a long stretch of the log.
_DRAIN_SECONDS = 120.0
_ROUND_SECONDS = 30.0
_TRIES = 30
_OPEN = """
    select (select count(*) from grns.tasks where finished_at is null) as tasks,
        (select last_value from grns.events_seq) - (select low from grns.relay_cursor) as log,
        (select num_nonnulls(evt_lost_since, dlq_lost_since) from grns.relay_cursor) as lost,
        (select -coalesce(least(evt_lost_settled, dlq_lost_settled), 0) from grns.relay_cursor) as unsettled,
        (select last_value from grns.events_seq) - (select low from grns.count_cursor) as uncounted,
        (select last_value from grns.events_seq) - (select low from grns.follow_cursor) as unfollowed,
        (select count(*) from grns.workflows where ended_at is null) as workflows,
        (select count(*) from grns.operations where due_at is not null) as operations,
        (select last_value from grns.events_seq) - (select low from grns.webhook_cursor) as untold,
        (select count(*) from grns.webhook_deliveries where due_at is not null) as deliveries,
        (select count(*) from grns.mail where acked_at is null) as mail{more}
"""
# A delivery that has failed would wait for hours: the receiver is well again.
_DUE = "update grns.webhook_deliveries set due_at = now() where due_at > now() and claim_id is null"


async def storm(options: argparse.Namespace, console: Console, directory: Path) -> bool:
    """Run everything once; True where nothing was violated."""
    stage = Stage(
        directory,
        brokers=options.cluster,
        rate=options.rate,
        has_services=not options.power,
        has_disks=options.power,
    )
    nemesis = Nemesis(stage, options.seed, per_second=options.faults, only=options.only)
    witness = Witness(stage)
    try:
        await stage.start(put_all, put_limits)
        witness.start()
        seconds = await _blow(stage, nemesis, options, console)
        drained = await _drain(stage, console)
        await witness.stop()
        report = await Checker(directory).check(stage.postgres.url)
        if stage.services is not None:
            await check_services(stage.postgres.url, stage.services, report)
        if options.power:
            await check_subscriber(stage.postgres.url, report)
            # What the broker has lost is replayed beside what is new: the promise of order excepts it.
            report.violations["order"].clear()
        inspection = await _inspect(stage.postgres.url)
        if options.brief:
            _say(console, report, inspection)
        else:
            _show(console, nemesis.counts, report, inspection)
            _show_machine(console, witness.seconds)
        if not report.is_clean and not options.brief:
            await show_violations(console, stage.postgres.url, report)
        _write(options, seconds, nemesis.counts, report, inspection, witness.seconds)
        return report.is_sound(options.may_repeat) and not inspection.counts and drained
    finally:
        await stage.end()


async def _blow(stage: Stage, nemesis: Nemesis, options: argparse.Namespace, console: Console) -> float:
    """Do faults under load, and return for how many seconds."""
    began = time.monotonic()
    with progress_on(console, BarColumn()) as progress:
        bar = progress.add_task("calm", total=options.seconds)
        await asyncio.sleep(_CALM_SECONDS)
        storming = asyncio.create_task(_rage(stage, nemesis, options, began))
        told = 0
        while not storming.done():
            await asyncio.sleep(0.5)
            seconds, faults = time.monotonic() - began, sum(nemesis.counts.values())
            progress.update(bar, completed=seconds, description=f"{faults:,} faults")
            if not console.is_terminal and seconds // 60 > told:
                told = int(seconds // 60)
                console.print(f"{told} min, {faults:,} faults, {await _tasks(stage):,} tasks")
        await storming
    return time.monotonic() - began


async def _rage(stage: Stage, nemesis: Nemesis, options: argparse.Namespace, began: float) -> None:
    """Do faults for as long as is asked for, and on until there were enough of them, and of tasks."""
    await nemesis.run(began + options.seconds)
    while sum(nemesis.counts.values()) < options.least_faults or await _tasks(stage) < options.least_tasks:
        await nemesis.run(time.monotonic() + _ROUND_SECONDS)


async def _tasks(stage: Stage) -> int:
    """Return how many tasks there are; none where Postgres cannot say."""
    try:
        connection = await asyncpg.connect(stage.postgres.url, timeout=3, command_timeout=30)
        try:
            return int(await connection.fetchval("select count(*) from grns.tasks"))
        finally:
            connection.terminate()
    except AWAY:
        return 0


async def _drain(stage: Stage, console: Console) -> bool:
    """Heal everything, submit nothing more, and wait until all is done; False where it never is."""
    await stage.heal()
    if stage.services is not None:
        stage.services.heal()
    await stage.dismiss("submitter", "operator")
    for prepare in (pause_all, let_all_end):
        await _patiently(prepare, stage.postgres.url)
    deadline = time.monotonic() + _DRAIN_SECONDS
    left: tuple[int, ...] = ()
    asked = _OPEN.format(more=f", {UNHEARD} as unheard" if stage.disks else "")
    while time.monotonic() < deadline:
        try:
            connection = await asyncpg.connect(stage.postgres.url, timeout=3, command_timeout=5)
        except AWAY:
            continue
        await connection.execute(_DUE)
        before, left = left, tuple(await connection.fetchrow(asked) or ())
        connection.terminate()
        if max(left) <= 0:
            await stage.hear_out()
            return True
        if left < before:
            deadline = time.monotonic() + _DRAIN_SECONDS
        await asyncio.sleep(0.5)
    names = "tasks, rows of the log, streams with losses, how far these are, rows not counted,"
    names += " rows not followed, workflows, operations,"
    names += (
        " rows that webhooks have not seen, deliveries, mail, events that the subscription has not handled"
    )
    console.print(f"not drained: {names}: {left}")
    return False


async def _patiently(prepare: Callable[[str], Awaitable[None]], url: str) -> None:
    """Do something to the database again and again: what the storm has left may still hold its rows."""
    for _ in range(_TRIES):
        try:
            return await prepare(url)
        except UnavailableError:
            await asyncio.sleep(1.0)
    return await prepare(url)


async def _inspect(url: str) -> ConsistencyCheck:
    database = Database(url, name="inspection", size=2)
    await database.connect()
    inspection = ConsistencyCheck(database, stuck_after_seconds=60.0)
    await inspection.look_at_all()
    await database.close()
    return inspection


def _show(console: Console, faults: Counter[str], report: Report, inspection: ConsistencyCheck) -> None:
    table = Table("fault", "times", title=f"{sum(faults.values())} faults")
    for name, times in sorted(faults.items()):
        table.add_row(name, str(times))
    console.print(table)
    states = ", ".join(f"{count:,} {state}" for state, count in report.states.most_common())
    console.print(f"{report.tasks:,} tasks: {states}")
    console.print(f"{report.executions:,} executions, {report.events:,} events and dead letters in the log")
    console.print(
        f"{report.needy:,} tasks and workflows that need others, {report.ticks:,} times of schedules,"
        f" {report.limited:,} tasks under limits, {report.stepwise:,} with steps,"
        f" {report.mail:,} messages, {report.routed:,} tasks for certain agents,"
        f" {report.followed:,} follow-ups, {report.files:,} results with a file,"
        f" {report.sealed:,} payloads with a password"
    )
    operations = ", ".join(f"{count:,} {state}" for state, count in report.operations.items()) or "none"
    console.print(f"bulk operations: {operations}; messages sent to a webhook: {report.deliveries:,}")
    repeated = ", ".join(f"{count:,} {why}" for why, count in report.repeated.items()) or "none"
    console.print(f"attempts that were taken away, all explained but those below: {repeated}")
    table = violations(report)
    table.add_row(
        "grns admin verify", str(sum(inspection.counts.values())), str(dict(inspection.counts) or "sound")
    )
    console.print(table)


def _show_machine(console: Console, seconds: Mapping[str, float]) -> None:
    took = ", ".join(f"{what.partition(': ')[2]} {took:.1f} s" for what, took in sorted(seconds.items()))
    console.print(f"what the machine did besides: {took or 'nothing'}")


def _say(console: Console, report: Report, inspection: ConsistencyCheck) -> None:
    found = {name: len(details) for name, details in report.violations.items() if details}
    if found or inspection.counts:
        console.print(f"violated: {found} {dict(inspection.counts)}", markup=False, soft_wrap=True)


def _write(
    options: argparse.Namespace,
    seconds: float,
    faults: Counter[str],
    report: Report,
    inspection: ConsistencyCheck,
    machine: Mapping[str, float],
) -> None:
    if options.result is None:
        return
    result = {
        "seed": options.seed,
        "seconds": round(seconds),
        "cluster": options.cluster,
        "faults": dict(sorted(faults.items())),
        "faults_in_all": sum(faults.values()),
        "seconds_that_the_machine_took": {what: round(took, 1) for what, took in sorted(machine.items())},
        "tasks": report.tasks,
        "states": dict(report.states),
        "executions": report.executions,
        "events": report.events,
        "tasks_and_workflows_that_need_others": report.needy,
        "times_of_schedules": report.ticks,
        "tasks_under_limits": report.limited,
        "tasks_with_steps": report.stepwise,
        "messages_between_agents": report.mail,
        "tasks_for_certain_agents": report.routed,
        "results_with_a_file": report.files,
        "follow_ups": report.followed,
        "payloads_with_a_password": report.sealed,
        "operations": dict(report.operations),
        "messages_sent_to_a_webhook": report.deliveries,
        "taken_away_and_explained": dict(report.repeated),
        "violations": {name: len(details) for name, details in report.violations.items()},
        "verify": dict(inspection.counts),
    }
    Path(options.result).write_text(json.dumps(result, indent=2) + "\n")


def main() -> int:
    """Read the options, run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--cluster", type=int, choices=(1, 3), default=1)
    parser.add_argument("--rate", type=float, default=100.0, help="tasks a second")
    parser.add_argument("--faults", type=float, default=1.5, help="faults a second")
    parser.add_argument("--least-faults", type=int, default=0, help="go on until there were so many")
    parser.add_argument("--least-tasks", type=int, default=0, help="go on until so many were handed in")
    parser.add_argument(
        "--may-repeat", type=int, default=0,
        help="so many attempts may be repeated unexplained: the machine has other work",
    )  # fmt: skip
    parser.add_argument("--only", default="", help="faults whose names have one of these in them (a,b)")
    parser.add_argument(
        "--power", action="store_true", help="data on disks whose power can be cut (root, loop devices, ext4)"
    )
    parser.add_argument("--result", help="a file to write the result to")
    parser.add_argument("--keep", action="store_true", help="keep journals and logs")
    parser.add_argument("--brief", action="store_true", help="only say what is violated, and keep nothing")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(f"SEED={options.seed} SECONDS={options.seconds:g} CLUSTER={options.cluster}")
    directory = Path(tempfile.mkdtemp(prefix="grns-chaos-"))
    directory.chmod(0o755)
    is_clean = False
    try:
        is_clean = asyncio.run(storm(options, console, directory))
    finally:
        if (is_clean and not options.keep) or options.brief:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            console.print(f"journals and logs: {directory}")
    console.print(
        f"[green]sound[/] (SEED={options.seed})" if is_clean else f"[red]violated[/] (SEED={options.seed})"
    )
    return 0 if is_clean else 1


if __name__ == "__main__":
    os.environ.pop("GRNS_DATABASE_URL", None)
    sys.exit(main())
