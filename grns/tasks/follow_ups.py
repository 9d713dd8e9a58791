"""Follow-ups of a pool: what grns submits when a task of a type has ended, as they are declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.envelope import first_problem
from grns.model.json import ANY_SIZE, Limits, dumps, loads_stored
from grns.model.secret import Path
from grns.model.submission import AgentType, AutomaticTask, Token
from grns.postgres import audit_log
from grns.postgres.database import Database, Session, run
from grns.tasks.secrets import declared_paths

MOST_OF_ONE_END = 10
_MOST = 1000
_PAYLOAD = Limits(document_bytes=16 * 1024, depth=32)


class WantedFollowUp(AutomaticTask):
    """What is submitted after a task of the type `follows`, if that has ended so.

    `failure` is failed or dead. `agent_type` is the pool of what is submitted. `payload` gets `task_id`,
    `task_type` and `status` of the task that has ended; after a success `result`, after a failure `payload`
    and `error`.
    """

    follows: Token
    outcome: Literal["success", "failure"]
    agent_type: AgentType


@dataclass(frozen=True, slots=True)
class FollowUpState:
    """A follow-up as it is declared: of which type, after which outcome, and what is submitted."""

    follows: str
    outcome: str
    task_type: str
    agent_type: str
    payload: dict[str, Any]
    priority: int
    max_attempts: int | None


def check_follow_ups(wanted: Sequence[AutomaticTask]) -> None:
    """Refuse what no end could submit. Raises InvalidInputError (`bad_follow_up`)."""
    if len(wanted) > MOST_OF_ONE_END:
        raise InvalidInputError(
            "bad_follow_up", f"an end has {MOST_OF_ONE_END} follow-ups at most, not {len(wanted)}"
        )
    for one in wanted:
        try:
            dumps(one.payload, _PAYLOAD)
        except InvalidInputError as error:
            raise InvalidInputError("bad_follow_up", f"payload of a follow-up: {error}") from error


def check_clear_payload(wanted: AutomaticTask, secret: Iterable[Path]) -> None:
    """Refuse a payload with what is secret to its handler (`bad_follow_up`): nothing seals it here."""
    names = {path[0] for path in secret if path}
    if found := sorted(name for name in wanted.payload if name in names or "*" in names):
        raise InvalidInputError(
            "bad_follow_up", f"payload of {wanted.task_type}: {found[0]} is secret, and nothing seals it here"
        )


class FollowUps:
    """What grns submits when tasks of a workspace have ended: `client.follow_ups`."""

    def __init__(self, database: Database | Session, workspace: str, actor: str | None) -> None:
        self._database = database
        self._workspace = workspace
        self._actor = actor or "client"

    async def put(
        self, pool: str, follow_ups: Sequence[WantedFollowUp | Mapping[str, Any]]
    ) -> Sequence[FollowUpState]:
        """Declare the follow-ups of a pool whose workers use HTTP, instead of those that it has; return them.

        Workers of Python declare what stands beside their handlers (`@pool.task(on_success=…)`) when they
        start, instead of this.

        Args:
            pool: name of the pool.
            follow_ups: objects of `follows` (a task type), `outcome` (`success`, or `failure` for failed and
                dead), `task_type` and `agent_type` (the pool) of what is submitted, and optionally `payload`,
                `priority` and `max_attempts`; up to 10 for one outcome of a type.

        Raises:
            InvalidInputError: one is invalid (`bad_follow_up`).

        Example:
            tell = {"task_type": "tell_editor", "agent_type": "desk", "priority": 0}
            await client.follow_ups.put("coder", [{"follows": "review", "outcome": "failure", **tell}])
        """
        subjects.token(pool, name="agent_type")
        wanted = _wanted(follow_ups)
        by_type: dict[str, list[WantedFollowUp]] = {}
        for one in wanted:
            by_type.setdefault(one.follows, []).append(one)
        for ones in by_type.values():
            for outcome in ("success", "failure"):
                check_follow_ups([one for one in ones if one.outcome == outcome])
        await self._check_clear(wanted)
        texts = [
            dumps([one.model_dump(exclude={"follows"}) for one in ones], ANY_SIZE)
            for ones in by_type.values()
        ]
        async with self._database.transaction() as connection:
            await run(connection, "put_follow_ups", self._workspace, pool, list(by_type), texts)
            await audit_log.note(
                connection, workspace=self._workspace, kind="evt.pool.follow_ups_changed", actor=self._actor,
                payload={"agent_type": pool, "follow_ups": [_described(one) for one in wanted]},
            )  # fmt: skip
        return await self.list(pool)

    async def list(self, pool: str) -> Sequence[FollowUpState]:
        """Return the follow-ups of a pool, by the type that they follow.

        Example:
            after = {(one.follows, one.outcome) for one in await client.follow_ups.list("coder")}
        """
        rows = await self._database.run("list_follow_ups", self._workspace, pool)
        return [FollowUpState(**{**row, "payload": loads_stored(row["payload"])}) for row in rows]

    async def _check_clear(self, wanted: Sequence[WantedFollowUp]) -> None:
        declared = await declared_paths(self._database, self._workspace)
        for one in wanted:
            check_clear_payload(one, declared.get(one.task_type, ()))


def _wanted(said: Sequence[WantedFollowUp | Mapping[str, Any]]) -> list[WantedFollowUp]:
    try:
        wanted = [
            one if isinstance(one, WantedFollowUp) else WantedFollowUp.model_validate(one) for one in said
        ]
    except ValidationError as error:
        raise InvalidInputError("bad_follow_up", first_problem(error)) from error
    if len(wanted) > _MOST:
        raise InvalidInputError("bad_follow_up", f"a pool has {_MOST} follow-ups at most")
    return wanted


def _described(one: WantedFollowUp) -> str:
    return f"{one.follows} {one.outcome} {one.agent_type}/{one.task_type}"
