"""`grns issue …`: failures that a person would call the same, and what people say of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import click

from grns.cli import bulk, failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, fields, heading, output_option, table, when

_STATES = ("new", "acknowledged", "ignored", "resolved", "regressed")
_LIST = "grns issue list"
_BARS = "▁▂▃▄▅▆▇█"
_FACETS = {"version": "version of grns in the worker (or what an HTTP worker names)"}
_FINGERPRINT = click.argument("fingerprint", metavar="FINGERPRINT", type=option.Token("fingerprint"))
_NOTE = click.option("--note", help="Note about the issue.")
_OWNER = click.option("--owner", metavar="NAME", help="Owner of the issue.")


@click.group(cls=Group)
def issue() -> None:
    """List and triage failures, grouped by fingerprint."""


@issue.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Only those in this state. Repeatable.",
)
@option.page_options(option.CursorType())
@output_option
def list_issues(out: Output, limit: int, after: str | None, states: tuple[str, ...]) -> None:
    """List issues, the latest seen first."""
    asyncio.run(_list(out, limit, after, states))


async def _list(out: Output, limit: int, after: str | None, states: tuple[Any, ...]) -> None:
    from grns.cli.session import reading
    from grns.dead_letters import listing
    from grns.stats import issues as store

    async with reading() as session:
        page = await store.list_issues(
            session.database, workspace=session.workspace, state=states or None, limit=limit, after=after
        )
        now = await listing.now(session.database)
    columns = [
        Column("FINGERPRINT", lambda row: row["fingerprint"]),
        Column("STATE", lambda row: row["state"], is_status=True),
        Column("OPEN", lambda row: row["open_count"]),
        Column("SEEN", lambda row: row["total"], spare=3),
        Column("ERROR", lambda row: row["error_class"], may_shrink=True),
        Column("MESSAGE", lambda row: row["message"], may_shrink=True),
        Column("24 HOURS", lambda row: sparkline(row["trend"]), spare=4),
        Column("LAST", lambda row: when(row["last_seen"], now), spare=1),
        Column("OWNER", lambda row: row["owner"], may_shrink=True, spare=2),
    ]
    out.rows(page.rows, columns, next_cursor=page.next_cursor)
    out.end(page.rows, page.next_cursor, nothing="no such issues")


@issue.command()
@_FINGERPRINT
@output_option
def show(out: Output, fingerprint: str) -> None:
    """Show an issue: an example, how often and where it was seen."""

    async def look() -> dict[str, Any]:
        from grns.cli.session import reading
        from grns.stats.issues import read_issue

        async with reading() as session:
            return await read_issue(session.database, workspace=session.workspace, fingerprint=fingerprint)

    with failure.hinting(missing=_LIST):
        _present(out, asyncio.run(look()))


@issue.command()
@_FINGERPRINT
@_NOTE
@_OWNER
@output_option
def ack(out: Output, fingerprint: str, **said: str | None) -> None:
    """Acknowledge an issue."""
    _change(out, fingerprint, "acknowledged", said)


@issue.command()
@_FINGERPRINT
@_NOTE
@output_option
def ignore(out: Output, fingerprint: str, **said: str | None) -> None:
    """Ignore an issue."""
    _change(out, fingerprint, "ignored", said)


@issue.command()
@_FINGERPRINT
@_NOTE
@output_option
def resolve(out: Output, fingerprint: str, **said: str | None) -> None:
    """Resolve an issue. If it is seen again, it becomes `regressed`."""
    _change(out, fingerprint, "resolved", said)


@issue.command()
@_FINGERPRINT
@_NOTE
@output_option
def reopen(out: Output, fingerprint: str, **said: str | None) -> None:
    """Reopen an issue (state `new`)."""
    _change(out, fingerprint, "new", said)


@issue.command()
@_FINGERPRINT
@click.argument("seconds", metavar="TIME", type=option.Duration(code="bad_issue"))
@_NOTE
@_OWNER
@output_option
def snooze(out: Output, fingerprint: str, seconds: float, **said: str | None) -> None:
    """Snooze an issue for TIME: 30m, 2h, 7d. 0 ends the snooze."""
    _change(out, fingerprint, None, said, snooze_seconds=seconds)


@issue.command()
@_FINGERPRINT
@bulk.bulk_options
@bulk.redrive_options
@option.sure_options
@output_option
def redrive(out: Output, fingerprint: str, wanted: str | None, **said: Any) -> None:
    """Redrive all open tasks of an issue, or those that match --filter."""
    bulk.run(out, "redrive", wanted=f"fingerprint:{fingerprint} {wanted or ''}", **said)


@issue.command()
@_FINGERPRINT
@bulk.bulk_options
@option.sure_options
@output_option
def discard(out: Output, fingerprint: str, wanted: str | None, **said: Any) -> None:
    """Discard all open tasks of an issue, or those that match --filter."""
    bulk.run(out, "discard", wanted=f"fingerprint:{fingerprint} {wanted or ''}", **said)


def _change(
    out: Output,
    fingerprint: str,
    state: Any,
    said: Mapping[str, Any],
    *,
    snooze_seconds: float | None = None,
) -> None:
    async def act() -> dict[str, Any]:
        from grns.cli.session import writing
        from grns.dead_letters import listing
        from grns.model.actor import of_process
        from grns.model.subjects import RELAY_NUDGE
        from grns.stats.issues import IssueUpdate, change_issue

        change: IssueUpdate = {} if state is None else {"state": state}
        for name, value in said.items():
            if value is not None:
                change[name] = value  # type: ignore[literal-required]
        async with writing() as session:
            if snooze_seconds is not None:
                until = await listing.now(session.database) + timedelta(seconds=snooze_seconds)
                change["snoozed_until"] = until if snooze_seconds else None
            changed = await change_issue(
                session.database,
                workspace=session.workspace,
                fingerprint=fingerprint,
                actor=of_process("cli"),
                **change,
            )
            await session.transport.nudge(RELAY_NUDGE)
            return changed

    with failure.hinting(missing=_LIST):
        changed = asyncio.run(act())
    if out.is_table:
        from grns.model.envelope import rfc3339

        until = changed["snoozed_until"]
        later = "" if snooze_seconds is None or until is None else f", and snoozed until {rfc3339(until)}"
        failure.note(f"issue {fingerprint} is {changed['state']}{later}")
    else:
        _present(out, changed)


def sparkline(counts: Sequence[int]) -> str:
    """Return counts as one short picture; nothing is a dot."""
    most = max(counts, default=0)
    return "".join(_BARS[(count * (len(_BARS) - 1)) // most] if count else "·" for count in counts)


def _present(out: Output, found: Mapping[str, Any]) -> None:
    out.record(found, lambda: _draw(found))


def _draw(found: Mapping[str, Any]) -> None:
    fields(
        [
            ("fingerprint", found["fingerprint"]),
            ("status", found["state"]),
            ("said by", found["state_by"]),
            ("since", found["state_at"]),
            ("owner", found["owner"]),
            ("note", found["note"]),
            ("snoozed until", found["snoozed_until"]),
            ("error", found["error_class"]),
            ("message", found["message"]),
            ("open", found["open_count"]),
            ("seen", found["total"]),
            ("first", found["first_seen"]),
            ("last", found["last_seen"]),
            ("24 hours", sparkline(found["trend"])),
            ("one of them", found["sample_task_id"]),
        ]
    )
    for facet, counts in found["facets"].items():
        if counts:
            heading(_FACETS.get(facet, facet.replace("_", " ")))
            rows = [{"value": value, "count": count} for value, count in counts.items()]
            table(
                rows, [Column("COUNT", lambda row: row["count"]), Column("VALUE", lambda row: row["value"])]
            )
