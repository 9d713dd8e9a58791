"""`grns doctor`: what of an installation is not as it should be, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from grns.cli import failure
from grns.cli.group import Command
from grns.cli.output import Output, output_option, text
from grns.errors import UnavailableError
from grns.text import counted

if TYPE_CHECKING:
    from grns.diagnose.doctor.finding import Finding
    from grns.diagnose.doctor.snapshot import Snapshot

# Checks that have an error where nobody answers.
_REACHED = ("postgres", "broker")


@click.command(cls=Command)
@click.option("--strict", "is_strict", is_flag=True, help="Warnings count as errors.")
@click.option("--all", "has_all", is_flag=True, help="Also show checks that passed.")
@output_option
def doctor(out: Output, is_strict: bool, has_all: bool) -> None:
    """Check PostgreSQL, NATS, daemons and workers; say what is wrong and what to do.

    It only reads. It judges by the settings that it runs with: pass those of your services. To check tasks,
    run
    `grns verify`.

    Exit code 1: an error was found. 5: PostgreSQL or NATS cannot be reached, and nothing else is wrong.
    """
    from grns.diagnose.doctor.diagnosis import diagnose, worst

    read = asyncio.run(_examine())
    findings = diagnose(read)
    record = {
        "is_well": worst(findings) in ("ok", "note"),
        "worst": worst(findings).value,
        "versions": _versions(read),
        "findings": [asdict(one) for one in findings],
    }
    out.record(record, lambda: _draw(read, findings, has_all=has_all))
    _conclude(findings, is_strict=is_strict)


async def _examine() -> Snapshot:
    from grns.bootstrap import tools
    from grns.bootstrap.app import App
    from grns.cli.session import impatient_settings

    app = App(impatient_settings())
    database, transport = app.database("doctor", size=2), app.transport("doctor")
    try:
        return await tools.examination(app, database, transport).read()
    finally:
        await transport.close()
        await database.close()


def _versions(read: Snapshot) -> dict[str, str | None]:
    import platform

    return {
        "grns": read.version,
        "python": platform.python_version(),
        "postgres": None if read.postgres is None else read.postgres.version,
        "nats": None if read.broker is None else read.broker.version,
        "schema": None if read.schema is None else read.schema.found,
    }


def _draw(read: Snapshot, findings: Sequence[Finding], *, has_all: bool) -> None:
    shown = [one for one in findings if has_all or one.severity != "ok"]
    for one in sorted(shown, key=lambda one: -one.severity.rank):
        text(f"{one.severity.value:<8} {one.check}: {one.sentence}")
        if one.what_to_do:
            text(f"{'':<9}to do: {one.what_to_do}")
    well = sum(one.severity == "ok" for one in findings)
    said = ", ".join(f"{name} {version}" for name, version in _versions(read).items() if version is not None)
    failure.note(f"{counted(well, 'check')} found nothing ({said})")


def _conclude(findings: Sequence[Finding], *, is_strict: bool) -> None:
    bad = ("error", "warning") if is_strict else ("error",)
    wrong = [one for one in findings if one.severity in bad]
    if not wrong:
        return
    away = [one for one in wrong if one.check in _REACHED and "cannot be reached" in one.sentence]
    failure.say(f"{counted(len(wrong), 'thing')} {'is' if len(wrong) == 1 else 'are'} wrong")
    raise click.exceptions.Exit(UnavailableError.exit_code if len(away) == len(wrong) else failure.FAILED)
