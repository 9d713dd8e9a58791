"""Issues: failures that a person would call the same, counted from the log, and what people say of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack, get_args

from grns.errors import InvalidInputError, NotFoundError, StaleVersionError
from grns.model.json import check
from grns.postgres.database import Database, Row, Session
from grns.postgres.paging import Page, cursor, place

State = Literal["new", "acknowledged", "ignored", "resolved", "regressed"]
STATES: tuple[State, ...] = get_args(State)
# What people may say; that a resolved one is back, only the log says.
_SAID = tuple(state for state in STATES if state != "regressed")
_LONGEST_NOTE, _LONGEST_OWNER = 4000, 255


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
) -> Page:
    """Return issues of a state, of some, or of all; what was seen last comes first.

    A row has `fingerprint`, `error_class`, `message` and `sample_task_id` (of the latest one), `first_seen`,
    `last_seen`, `total` (how often it was seen), `open_count` (how many tasks are dead or failed of it now),
    `state` with `state_by` and `state_at`, `note`, `owner`, `snoozed_until`, `version`, and `trend`: how
    often it was seen in each of the last 24 hours, oldest first.
    """
    states = STATES if state is None else [state] if isinstance(state, str) else state
    at, fingerprint = place(after) if after is not None else (None, None)
    rows = await database.run("list_issues", workspace, list(states), at, fingerprint, limit + 1)
    shown = [dict(row) for row in rows[:limit]]
    if len(rows) <= limit:
        return Page(shown, None)
    return Page(shown, cursor(shown[-1]["last_seen"].isoformat(), shown[-1]["fingerprint"]))


async def read_issue(database: Database | Session, *, workspace: str, fingerprint: str) -> dict[str, Any]:
    """Return one issue: a row of `list_issues`, and its `facets`; `NotFoundError` where there is none.

    `facets` has, for each of `task_type`, `worker`, `version` and `error`, how often each value was seen, the
    most frequent first; beyond the first 20 values all others together, as `other`.
    """
    rows = await database.run("read_issue", workspace, fingerprint)
    if not rows:
        raise NotFoundError(f"there is no issue {ascii(fingerprint)[:100]} in workspace {workspace}")
    return {**rows[0], "facets": _facets(rows[0])}


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
) -> dict[str, Any]:
    """Say something of an issue, and return it as it is then. The log has who said it.

    `version` is the one that was looked at: `StaleVersionError` if another request has changed it
    since. Raises
    `InvalidInputError` and `NotFoundError`.
    """
    _check(change)
    rows = await database.run(
        "change_issue", workspace, fingerprint, version, list(change), change.get("state"),
        change.get("note"), change.get("owner"), change.get("snoozed_until"), actor,
    )  # fmt: skip
    issue = await read_issue(database, workspace=workspace, fingerprint=fingerprint)
    if not rows:
        raise StaleVersionError(f"issue {fingerprint} is at version {issue['version']}, not at {version}")
    return issue


def _check(change: IssueUpdate) -> None:
    if not change:
        raise InvalidInputError(
            "bad_issue", "nothing is said: name the issue's state, note, owner or snoozed_until"
        )
    if "state" in change and change["state"] not in _SAID:
        said = ascii(change["state"])[:100]
        raise InvalidInputError("bad_issue", f"an issue's state is one of {', '.join(_SAID)}, not {said}")
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
