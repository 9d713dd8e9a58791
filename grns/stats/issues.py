"""Issues: failures that a person would call the same, counted from the log, and what people say of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, TypedDict, Unpack, get_args

from pydantic import Field

from grns.errors import InvalidInputError, NotFoundError, StaleVersionError
from grns.model.json import check
from grns.postgres.database import Database, Row, Session, build
from grns.postgres.paging import Page, cursor, page_of, place

State = Literal["new", "acknowledged", "ignored", "resolved", "regressed"]
STATES: tuple[State, ...] = get_args(State)
# States that a request may set; only a new failure makes an issue regressed.
_SETTABLE = tuple(state for state in STATES if state != "regressed")
_LONGEST_NOTE, _LONGEST_OWNER = 4000, 255


@dataclass(frozen=True, slots=True)
class Issue:
    """Failures with one fingerprint.

    `message` and `sample_task_id` are those of the latest one. `total` counts how often it was seen,
    `open_count` the tasks that are dead or failed of it now, and `trend` the failures of each of the last 24
    hours, oldest first.
    """

    fingerprint: str
    error_class: str
    message: str
    sample_task_id: str
    first_seen: datetime
    last_seen: datetime
    total: int
    open_count: int
    state: State
    state_by: str | None
    state_at: datetime
    note: str | None
    owner: str | None
    snoozed_until: datetime | None
    version: int
    trend: list[int]


@dataclass(frozen=True, slots=True)
class IssueDetail(Issue):
    """An issue, and with which task types, workers, versions and messages it was seen how often.

    `facets` has the most frequent values first; beyond the first 20 all others together, as `other`.
    """

    facets: Annotated[
        dict[str, dict[str, int]],
        Field(
            description="By `task_type`, `worker`, `error` and `version`: how often each value was seen."
            " `version` is that of grns in the worker, or what an HTTP worker names as its own."
        ),
    ]


class IssueUpdate(TypedDict, total=False):
    """Changes to an issue; fields that are left out stay."""

    state: State
    note: str | None
    owner: str | None
    snoozed_until: datetime | None


async def list_issues(
    database: Database | Session,
    *,
    workspace: str,
    state: State | Sequence[State] | None = None,
    limit: int,
    after: str | None = None,
) -> Page[Issue]:
    """Return issues of a state, of some, or of all, the latest seen first."""
    states = STATES if state is None else [state] if isinstance(state, str) else state
    at, fingerprint = place(after) if after is not None else (None, None)
    found = await database.fetch(Issue, "list_issues", workspace, list(states), at, fingerprint, limit + 1)
    return page_of(found, limit, lambda issue: cursor(issue.last_seen.isoformat(), issue.fingerprint))


async def read_issue(database: Database | Session, *, workspace: str, fingerprint: str) -> IssueDetail:
    """Return one issue with its facets; raises `NotFoundError` if it does not exist."""
    rows = await database.run("read_issue", workspace, fingerprint)
    if not rows:
        raise NotFoundError(f"there is no issue {ascii(fingerprint)[:100]} in workspace {workspace}")
    return build(IssueDetail, {**rows[0], "facets": _facets(rows[0])})


def _facets(row: Row) -> dict[str, dict[str, int]]:
    facets: dict[str, dict[str, int]] = {"task_type": {}, "worker": {}, "version": {}, "error": {}}
    for facet, value, count in json.loads(row["facets"]):
        facets[facet][value] = count
    return facets


async def change_issue(
    database: Database | Session,
    *,
    workspace: str,
    fingerprint: str,
    actor: str | None,
    version: int | None = None,
    **change: Unpack[IssueUpdate],
) -> IssueDetail:
    """Change an issue, and return it as it is then. An event names the actor.

    `version` is the version that the caller read: raises `StaleVersionError` if it has changed since, also
    `InvalidInputError` and `NotFoundError`.
    """
    _check(change)
    rows = await database.run(
        "change_issue", workspace, fingerprint, version, list(change), change.get("state"),
        change.get("note"), change.get("owner"), change.get("snoozed_until"), actor,
    )  # fmt: skip
    issue = await read_issue(database, workspace=workspace, fingerprint=fingerprint)
    if not rows:
        raise StaleVersionError(f"issue {fingerprint} is at version {issue.version}, not at {version}")
    return issue


def _check(change: IssueUpdate) -> None:
    if not change:
        raise InvalidInputError("bad_issue", "no changes: pass state, note, owner or snoozed_until")
    if "state" in change and change["state"] not in _SETTABLE:
        shown = ascii(change["state"])[:100]
        raise InvalidInputError(
            "bad_issue", f"an issue's state is one of {', '.join(_SETTABLE)}, not {shown}"
        )
    _check_text("note", change.get("note"), _LONGEST_NOTE)
    _check_text("owner", change.get("owner"), _LONGEST_OWNER)
    moment = change.get("snoozed_until")
    if moment is not None and moment.tzinfo is None:
        raise InvalidInputError("bad_issue", "snoozed_until has no zone: write a Z behind it for UTC")


def _check_text(name: str, text: str | None, longest: int) -> None:
    if text is None:
        return
    if len(text) > longest:
        raise InvalidInputError("bad_issue", f"{name} has {longest} characters at most")
    try:
        check(text)
    except InvalidInputError as error:
        raise InvalidInputError("bad_issue", f"{name}: {error}") from error
