"""`grns explain` and `grns doctor`."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

import click

from grns.bootstrap import tools
from grns.cli import failure, option
from grns.cli.group import Command
from grns.cli.output import Column, Output, heading, output_option, passage, table, text
from grns.cli.session import CliSession, with_session
from grns.diagnose.doctor.diagnosis import diagnose, worst
from grns.diagnose.doctor.finding import Finding
from grns.diagnose.doctor.snapshot import Snapshot
from grns.diagnose.explain.explanation import Explanation
from grns.errors import UnavailableError
from grns.model.text import counted, lasted

_SHOWN_STEPS = 40
_STEPS = (
    Column("AT", "at", spare=1),
    Column("AFTER", lambda row: lasted(row["after_seconds"])),
    Column("V", "version", spare=2),
    Column("#", "attempt", spare=3),
    Column("WHAT", "sentence", may_shrink=True, wraps=True),
)
# The checks that fail if a server does not answer.
_SERVER_CHECKS = ("postgres", "broker")


@click.command(cls=Command, examples=["grns explain TASK_ID", "grns explain TASK_ID -o json"])
@click.argument("task_id", metavar="TASK", type=option.TASK_ID)
@output_option
@with_session("read")
async def explain(session: CliSession, out: Output, task_id: str) -> None:
    """Explain why a task has its status, what helps, and what happened to it.

    It reads the task, the event log, its pool and the broker, and changes nothing. The broker may be down.
    """
    with suppress(UnavailableError):  # the explanation says so if it matters
        await session.transport.connect()
    explainer = tools.explainer(session.app, session.database, session.transport)
    explanation = await explainer.explain(task_id)
    out.record(asdict(explanation), lambda: _draw_explanation(explanation))


def _draw_explanation(explanation: Explanation) -> None:
    text(explanation.sentence)
    for reason in explanation.reasons[1:]:
        text(f"  also: {reason.sentence}" if reason.word != "issue" else f"  {reason.sentence}")
    for command in explanation.next_steps:
        text(f"  try: {command}")
    if explanation.traceback:
        passage("traceback", explanation.traceback)
    if not explanation.steps:
        failure.note("the events of this task have been deleted")
        return
    heading("what happened")
    if len(explanation.steps) > _SHOWN_STEPS:
        failure.note(f"the last {_SHOWN_STEPS} steps; grns task events {explanation.task_id} shows all")
    table([asdict(step) for step in explanation.steps[-_SHOWN_STEPS:]], _STEPS)


@click.command(cls=Command, examples=["grns doctor", "grns doctor --strict --all -o json"])
@click.option("--strict", "is_strict", is_flag=True, help="Warnings count as errors.")
@click.option("--all", "has_all", is_flag=True, help="Also show checks that passed.")
@output_option
@with_session("none")
async def doctor(session: CliSession, out: Output, is_strict: bool, has_all: bool) -> None:
    """Check PostgreSQL, NATS, daemons and workers; say what is wrong and what to do.

    It only reads. It judges by the settings that it runs with: pass those of your services. To check tasks,
    run `grns admin verify`.

    Exit code 1: an error was found. 5: PostgreSQL or NATS cannot be reached, and nothing else is wrong.
    """
    snapshot = await tools.doctor(session.app, session.database, session.transport).read()
    findings = diagnose(snapshot)
    record = {
        "is_well": worst(findings) in ("ok", "note"),
        "worst": worst(findings).value,
        "versions": _versions(snapshot),
        "findings": [asdict(finding) for finding in findings],
    }
    out.record(record, lambda: _draw_findings(snapshot, findings, has_all=has_all))
    _conclude(findings, is_strict=is_strict)


def _versions(snapshot: Snapshot) -> dict[str, str | None]:
    return {
        "grns": snapshot.version,
        "python": platform.python_version(),
        "postgres": None if snapshot.postgres is None else snapshot.postgres.version,
        "nats": None if snapshot.broker is None else snapshot.broker.version,
        "schema": None if snapshot.schema is None else snapshot.schema.found,
    }


def _draw_findings(snapshot: Snapshot, findings: Sequence[Finding], *, has_all: bool) -> None:
    shown = [finding for finding in findings if has_all or finding.severity != "ok"]
    for finding in sorted(shown, key=lambda finding: -finding.severity.rank):
        text(f"{finding.severity.value:<8} {finding.check}: {finding.sentence}")
        if finding.what_to_do:
            text(f"{'':<9}to do: {finding.what_to_do}")
    passed = sum(finding.severity == "ok" for finding in findings)
    versions = ", ".join(f"{name} {version}" for name, version in _versions(snapshot).items() if version)
    failure.note(f"{counted(passed, 'check')} passed ({versions})")


def _conclude(findings: Sequence[Finding], *, is_strict: bool) -> None:
    bad = ("error", "warning") if is_strict else ("error",)
    wrong = [finding for finding in findings if finding.severity in bad]
    if not wrong:
        return
    away = [
        finding
        for finding in wrong
        if finding.check in _SERVER_CHECKS and "cannot be reached" in finding.sentence
    ]
    failure.print_error(f"{counted(len(wrong), 'thing')} {'is' if len(wrong) == 1 else 'are'} wrong")
    raise click.exceptions.Exit(UnavailableError.exit_code if len(away) == len(wrong) else failure.FAILED)
