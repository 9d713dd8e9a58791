"""`grns issue …`: failures, grouped by fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click

from grns.cli import actions, failure, option
from grns.cli.group import Group
from grns.cli.output import Cell, Column, Output, details, heading, output_option, table
from grns.cli.session import CliSession, paged, with_session
from grns.model.envelope import rfc3339
from grns.model.subjects import RELAY_NUDGE
from grns.operations.model import Action
from grns.postgres.paging import Page
from grns.stats import issues
from grns.stats.issues import Issue, IssueDetail, IssueUpdate

_LIST = "grns issue list"
_BARS = "▁▂▃▄▅▆▇█"
_FACETS = {"version": "version of grns in the worker (or what an HTTP worker names)"}
_FINGERPRINT = click.argument("fingerprint", metavar="FINGERPRINT", type=option.Token("fingerprint"))
_NOTE = click.option("--note", help="Note about the issue.")
_OWNER = click.option("--owner", metavar="NAME", help="Owner of the issue.")


def sparkline(counts: Sequence[int]) -> str:
    """Return counts as a row of bars; 0 is a dot."""
    most = max(counts, default=0)
    return "".join(_BARS[(count * (len(_BARS) - 1)) // most] if count else "·" for count in counts)


_COLUMNS = (
    Column("FINGERPRINT", "fingerprint"),
    Column("STATE", "state", is_status=True),
    Column("OPEN", "open_count"),
    Column("SEEN", "total", spare=3),
    Column("ERROR", "error_class", may_shrink=True),
    Column("MESSAGE", "message", may_shrink=True),
    Column("24 HOURS", lambda issue: sparkline(issue.trend), spare=4),
    Column("LAST", "last_seen", is_age=True, spare=1),
    Column("OWNER", "owner", may_shrink=True, spare=2),
)
_FIELDS: list[tuple[str, Cell]] = [
    ("fingerprint", "fingerprint"),
    ("status", "state"),
    ("changed by", "state_by"),
    ("since", "state_at"),
    ("owner", "owner"),
    ("note", "note"),
    ("snoozed until", "snoozed_until"),
    ("error", "error_class"),
    ("message", "message"),
    ("open", "open_count"),
    ("seen", "total"),
    ("first", "first_seen"),
    ("last", "last_seen"),
    ("24 hours", lambda issue: sparkline(issue.trend)),
    ("example", "sample_task_id"),
]
_FACET_COLUMNS = (Column("COUNT", "count"), Column("VALUE", "value"))


@click.group(cls=Group)
def issue() -> None:
    """List and triage failures, grouped by fingerprint."""


@issue.command("list", examples=["grns issue list", "grns issue list --state new --state regressed"])
@option.states_option(issues.STATES)
@paged(_COLUMNS, nothing="no such issues")
async def list_issues(session: CliSession, states: tuple[Any, ...], **page: Any) -> Page[Issue]:
    """List issues, the latest seen first."""
    return await issues.list_issues(
        session.database, workspace=session.workspace, state=states or None, **page
    )


@issue.command(examples=["grns issue show FINGERPRINT", "grns issue show FINGERPRINT -o json"])
@_FINGERPRINT
@output_option
@with_session("read", missing=_LIST)
async def show(session: CliSession, out: Output, fingerprint: str) -> None:
    """Show an issue: an example, how often and where it was seen."""
    found = await issues.read_issue(session.database, workspace=session.workspace, fingerprint=fingerprint)
    out.record(found, lambda: _draw(found))


def _add(verb: str, state: str, help_text: str, note: str) -> None:
    """Add a command that changes the state of an issue."""

    @issue.command(
        verb,
        help=help_text,
        examples=[f"grns issue {verb} FINGERPRINT", f'grns issue {verb} FINGERPRINT --note "{note}"'],
    )
    @_FINGERPRINT
    @_NOTE
    @_OWNER
    @output_option
    def command(**given: Any) -> None:
        _change(state=state, **given)


_add("ack", "acknowledged", "Acknowledge an issue.", "the supplier changed its API")
_add("ignore", "ignored", "Ignore an issue.", "only in tests")
_add("resolve", "resolved", "Resolve an issue. If it is seen again, it becomes `regressed`.", "fixed in 1.4")
_add("reopen", "new", "Reopen an issue (state `new`).", "not fixed")


@issue.command(examples=["grns issue snooze FINGERPRINT 2d", "grns issue snooze FINGERPRINT 0"])
@_FINGERPRINT
@click.argument("seconds", metavar="TIME", type=option.Duration(code="bad_issue"))
@_NOTE
@_OWNER
@output_option
def snooze(**given: Any) -> None:
    """Snooze an issue for TIME: 30m, 2h, 7d. 0 ends the snooze."""
    _change(state=None, **given)


@issue.command(
    examples=[
        "grns issue redrive FINGERPRINT --canary --rate 600/min",
        "grns issue redrive FINGERPRINT --filter 'age:<1d' --dry-run",
    ]
)
@_FINGERPRINT
@actions.action_options(Action.REDRIVE)
def redrive(fingerprint: str, expression: str | None, **given: Any) -> None:
    """Redrive all open tasks of an issue, or those that match --filter."""
    actions.act(action=Action.REDRIVE, expression=_of_issue(fingerprint, expression), **given)


@issue.command(
    examples=[
        'grns issue discard FINGERPRINT --reason "too old"',
        "grns issue discard FINGERPRINT --filter 'age:>30d' --dry-run",
    ]
)
@_FINGERPRINT
@actions.action_options(Action.DISCARD)
def discard(fingerprint: str, expression: str | None, **given: Any) -> None:
    """Discard all open tasks of an issue, or those that match --filter."""
    actions.act(action=Action.DISCARD, expression=_of_issue(fingerprint, expression), **given)


def _of_issue(fingerprint: str, expression: str | None) -> str:
    return f"fingerprint:{fingerprint} {expression or ''}"


@with_session("write", missing=_LIST)
async def _change(
    session: CliSession,
    /,
    out: Output,
    *,
    fingerprint: str,
    state: Any,
    seconds: float | None = None,
    **fields: Any,
) -> None:
    change: IssueUpdate = {} if state is None else {"state": state}
    change.update({name: value for name, value in fields.items() if value is not None})  # type: ignore[typeddict-item]
    if seconds is not None:
        until = await session.now() + timedelta(seconds=seconds)
        change["snoozed_until"] = until if seconds else None
    changed = await issues.change_issue(
        session.database, workspace=session.workspace, fingerprint=fingerprint, actor=session.actor, **change
    )
    await session.transport.nudge(RELAY_NUDGE)
    snoozed_until = changed.snoozed_until if seconds else None
    snoozed = f", and snoozed until {rfc3339(snoozed_until)}" if snoozed_until else ""
    sentence = f"issue {fingerprint} is {changed.state}{snoozed}"
    out.record(changed, lambda: failure.note(sentence))


def _draw(issue: IssueDetail) -> None:
    details(issue, _FIELDS)
    for facet, counts in issue.facets.items():
        if counts:
            heading(_FACETS.get(facet, facet.replace("_", " ")))
            table([{"value": value, "count": count} for value, count in counts.items()], _FACET_COLUMNS)
