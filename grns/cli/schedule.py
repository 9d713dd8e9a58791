"""`grns schedule …`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from zoneinfo import ZoneInfo

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Cell, Column, Output, output_option, text
from grns.cli.session import CliSession, paged, with_session
from grns.errors import ConflictError
from grns.model.text import counted
from grns.postgres.paging import Page
from grns.schedules import service as store
from grns.schedules.backfill import backfill
from grns.schedules.model import Schedule, ScheduleRun, ScheduleSpec, schedule_spec
from grns.schedules.scheduler import run_now
from grns.schedules.ticks import CatchUp, Overlap
from grns.settings import load

_LIST = "grns schedule list"
_NAME = click.argument("name", metavar="NAME", type=option.Token("name"))
_MOST_TIMES = 1000


def _state(schedule: Schedule) -> str:
    return "active" if schedule.paused_at is None else "paused"


_COLUMNS = (
    Column("NAME", "name"),
    Column("WHEN", "when", may_shrink=True),
    Column("TASK", "task_type"),
    Column("POOL", "agent_type"),
    Column("STATE", _state, is_status=True),
    Column("NEXT", lambda one: None if one.paused_at else f"{one.next_at:%Y-%m-%d %H:%M:%S}Z"),
    Column("LAST", "last_due_at", is_age=True, spare=1),
    Column("OVERLAP", "overlap", spare=2),
)
_FIELDS: Sequence[tuple[str, Cell]] = (
    ("name", "name"),
    ("when", "when"),
    ("task type", "task_type"),
    ("pool", "agent_type"),
    ("state", _state),
    ("paused by", "paused_by"),
    ("reason", "pause_reason"),
    ("next at", "next_at"),
    ("last due at", "last_due_at"),
    ("last task", "last_task_id"),
    ("overlap", "overlap"),
    ("catch up", "catch_up"),
    ("window", lambda one: f"{one.window_seconds:g} s"),
    ("jitter", lambda one: f"{one.jitter_seconds:g} s" if one.jitter_seconds else None),
    ("pause after", lambda one: one.pause_after_failures and counted(one.pause_after_failures, "failure")),
    ("failures in a row", lambda one: one.failures or None),
    ("priority", "priority"),
    ("max attempts", "max_attempts"),
    ("payload", "payload"),
    ("workspace", "workspace"),
    ("changed by", "updated_by"),
    ("changed at", "updated_at"),
    ("declared at", "declared_at"),
)
_TIMES = (
    Column("UTC", lambda time: f"{time['utc']:%Y-%m-%d %H:%M:%S}Z"),
    Column("LOCAL", lambda time: f"{time['local']:%a %Y-%m-%d %H:%M:%S%z}"),
)
_RUNS = (
    Column("DUE", lambda run: f"{run.due_at:%Y-%m-%d %H:%M:%S}Z"),
    Column("OUTCOME", "outcome", is_status=True),
    Column("REASON", "reason"),
    Column("MISSED", "missed", spare=2),
    Column("SOURCE", "source", spare=3),
    Column("TASK", "task_id"),
    Column("DECIDED", "decided_at", is_age=True, spare=1),
)


@click.group(cls=Group)
def schedule() -> None:
    """Submit tasks by the clock, or in intervals."""


@schedule.command(
    examples=[
        "grns schedule put report write_report --pool reports --cron '0 9 * * 1-5' --time-zone Europe/Vienna",
        "grns schedule put sweep sweep_files --pool files --every 10m --overlap queue_one",
    ]
)
@_NAME
@click.argument("task_type", metavar="TYPE", type=option.Token("task_type"))
@click.option("--pool", "agent_type", metavar="POOL", required=True, type=option.Token("pool"), help="Pool.")
@click.option("--cron", metavar="FIELDS", help="Five fields: minute, hour, day, month, day of the week.")
@click.option(
    "--every", "every_seconds", metavar="TIME", type=option.Duration(code="bad_schedule"),
    help="Interval instead: 90s, 10m, 1h.",
)  # fmt: skip
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of --cron.")
@click.option("--payload", metavar="JSON", help="Payload: JSON, @FILE, or - for standard input.")
@click.option("--priority", type=click.IntRange(0, 3), default=2, show_default=True, help="0 is critical.")
@click.option("--max-attempts", type=click.IntRange(1, 1000), help="Attempts of each task.")
@click.option(
    "--overlap", type=click.Choice(get_args(Overlap)), default="skip", show_default=True,
    help="While the task before has not ended.",
)  # fmt: skip
@click.option(
    "--catch-up", type=click.Choice(get_args(CatchUp)), default="latest", show_default=True,
    help="Which missed times submit a task.",
)  # fmt: skip
@click.option(
    "--window", "window_seconds", metavar="TIME", type=option.Duration(code="bad_schedule"), default="1d",
    show_default=True, help="How long ago a missed time may be.",
)  # fmt: skip
@click.option(
    "--jitter", "jitter_seconds", metavar="TIME", type=option.Duration(code="bad_schedule"), default="0",
    show_default=True, help="How much later than due each task may start: less than 1h.",
)  # fmt: skip
@click.option(
    "--pause-after-failures", type=click.IntRange(1, 1000), metavar="NUMBER",
    help="Failed or dead tasks in a row after which to pause it. Defaults to never.",
)  # fmt: skip
@output_option
def put(out: Output, payload: str | None, **fields: Any) -> None:
    """Create the schedule NAME, or replace it: it submits a task of TYPE whenever it is due."""
    document = {} if payload is None else option.read_json(payload)
    _put(out, schedule_spec(payload=document, **fields))


@with_session("write")
async def _put(session: CliSession, out: Output, spec: ScheduleSpec) -> None:
    found = await store.put(
        session.database,
        spec,
        workspace=session.workspace,
        actor=session.actor,
        limits=load().payload_limits,
    )
    out.record(found, lambda: text(found.name))
    failure.note(f"next at {found.next_at:%Y-%m-%d %H:%M:%S} UTC; see: grns schedule next {found.name}")


@schedule.command("list", examples=["grns schedule list", "grns schedule list -o json"])
@paged(_COLUMNS, nothing="no schedules")
async def list_schedules(session: CliSession, **page: Any) -> Page[Schedule]:
    """List schedules by name."""
    return await store.list_schedules(session.database, workspace=session.workspace, **page)


@schedule.command(examples=["grns schedule show report", "grns schedule show report -o json"])
@_NAME
@output_option
@with_session("read", missing=_LIST)
async def show(session: CliSession, out: Output, name: str) -> None:
    """Show a schedule."""
    out.details(await store.read(session.database, name, workspace=session.workspace), _FIELDS)


@schedule.command("next", examples=["grns schedule next report", "grns schedule next report --count 3"])
@_NAME
@click.option(
    "--count", type=click.IntRange(1, _MOST_TIMES), default=10, show_default=True, help="How many times."
)
@output_option
@with_session("read", missing=_LIST)
async def show_next(session: CliSession, out: Output, name: str, count: int) -> None:
    """Show the next times of a schedule, in UTC and in its time zone."""
    found = await store.read(session.database, name, workspace=session.workspace)
    zone = ZoneInfo(found.time_zone)
    times = [{"utc": time, "local": time.astimezone(zone)} for time in found.next_times(count)]
    out.rows(times, _TIMES)


@schedule.command(examples=["grns schedule runs report", "grns schedule runs report --limit 100"])
@_NAME
@paged(_RUNS, nothing="nothing was due yet", missing=_LIST)
async def runs(session: CliSession, name: str, **page: Any) -> Page[ScheduleRun]:
    """List what was decided each time a schedule was due, the latest first."""
    await store.read(session.database, name, workspace=session.workspace)
    return await store.list_runs(session.database, name, workspace=session.workspace, **page)


@schedule.command(examples=["grns schedule pause report", "grns schedule pause report --reason holidays"])
@_NAME
@option.REASON
@output_option
@with_session("write", missing=_LIST)
async def pause(session: CliSession, out: Output, name: str, reason: str | None) -> None:
    """Pause a schedule. What is due until it is resumed is not submitted, then or later."""
    found = await store.pause(
        session.database, name, workspace=session.workspace, actor=session.actor, reason=reason
    )
    out.details(found, _FIELDS)


@schedule.command(examples=["grns schedule resume report", "grns schedule resume report -o json"])
@_NAME
@output_option
@with_session("write", missing=_LIST)
async def resume(session: CliSession, out: Output, name: str) -> None:
    """Resume a schedule from its next time on, and count its failures from zero."""
    out.details(
        await store.resume(session.database, name, workspace=session.workspace, actor=session.actor), _FIELDS
    )


@schedule.command("run", examples=["grns schedule run report", "grns schedule run report --force"])
@_NAME
@click.option("--force", "is_forced", is_flag=True, help="Even if the task before has not ended.")
@output_option
@with_session("write", missing=_LIST)
async def run_schedule(session: CliSession, out: Output, name: str, is_forced: bool) -> None:
    """Submit the task of a schedule now. Its next time stays."""
    made = await run_now(
        session.database, session.transport, name, workspace=session.workspace, actor=session.actor,
        limits=load().payload_limits, is_forced=is_forced,
    )  # fmt: skip
    out.record(asdict(made), lambda: text(made.task_id or ""))
    if made.outcome == "skipped":
        raise failure.hinted(
            ConflictError(f"nothing was submitted: {made.reason}, task {made.task_id}"),
            f"grns schedule run {name} --force",
        )


@schedule.command(
    "backfill",
    examples=[
        "grns schedule backfill report 2026-01-01T00:00Z 2026-02-01T00:00Z",
        "grns schedule backfill report 7d 0 --yes",
    ],
)
@_NAME
@click.argument("start", metavar="FROM", type=option.Moment())
@click.argument("end", metavar="TO", type=option.Moment())
@option.sure_options
@output_option
@with_session("write", missing=_LIST)
async def backfill_schedule(
    session: CliSession,
    out: Output,
    name: str,
    start: float | datetime,
    end: float | datetime,
    is_trial: bool,
    is_sure: bool,
) -> None:
    """Submit the tasks of times in a range that had none.

    FROM and TO are times, or how long ago they are: 7d, 2h. TO itself is not part of the range.
    """
    now = datetime.now(UTC)
    span = (_moment(start, now), _moment(end, now))
    fields: dict[str, Any] = {
        "workspace": session.workspace, "actor": session.actor, "limits": load().payload_limits,
    }  # fmt: skip
    plan = await backfill(session.database, session.transport, name, *span, is_trial=True, **fields)
    failure.note(f"{counted(plan.times, 'time')}; {plan.left_alone} had a task before")
    sentence = f"submit {counted(plan.submitted, 'task')} of schedule {name}"
    if is_trial:
        failure.note(f"would {sentence}")
    elif plan.submitted:
        option.confirm(sentence, is_sure=is_sure, count=plan.submitted)
        plan = await backfill(session.database, session.transport, name, *span, **fields)
    out.record(asdict(plan), lambda: text(str(plan.submitted)))


def _moment(said: float | datetime, now: datetime) -> datetime:
    return said if isinstance(said, datetime) else now - timedelta(seconds=said)


@schedule.command(examples=["grns schedule prune --dry-run", "grns schedule prune --yes"])
@option.sure_options
@output_option
@with_session("write", missing=_LIST)
async def prune(session: CliSession, out: Output, is_trial: bool, is_sure: bool) -> None:
    """Delete schedules of your code that no live worker declares any more.

    Schedules of a pool without a live worker stay.
    """
    fields: dict[str, Any] = {"workspace": session.workspace, "actor": session.actor}
    found = await store.prune(session.database, is_trial=True, **fields)
    out.rows(found.schedules, _COLUMNS)
    sentence = f"delete {counted(len(found.schedules), 'schedule')}"
    if is_trial or not found.schedules:
        failure.note(f"would {sentence}" if is_trial else "no schedules to delete")
        return
    option.confirm(sentence, is_sure=is_sure, count=len(found.schedules))
    found = await store.prune(session.database, **fields)
    failure.note(f"deleted {counted(len(found.schedules), 'schedule')}")


@schedule.command(examples=["grns schedule delete report", "grns schedule delete report --yes"])
@_NAME
@option.sure_options
@with_session("write", missing=_LIST)
async def delete(session: CliSession, name: str, is_trial: bool, is_sure: bool) -> None:
    """Delete a schedule. Tasks that it has submitted stay."""
    found = await store.read(session.database, name, workspace=session.workspace)
    option.confirm(f"delete schedule {name} ({found.when})", is_sure=is_sure, is_trial=is_trial)
    await store.delete(session.database, name, workspace=session.workspace, actor=session.actor)
    failure.note(f"schedule {name} is deleted")
