"""Who asks, and what they may do: scopes, and the workspace to which they are bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from grns.errors import InvalidInputError, PermissionDeniedError
from grns.model.subjects import token

Scope = Literal["read", "submit", "operate", "work", "answer", "reveal", "admin"]

MOST_POOLS = 100

# What each permits.
SCOPES: dict[Scope, str] = {
    "read": "look at everything",
    "submit": "create tasks",
    "operate": "change what there is: cancel, redrive, edit, discard, pause, triage",
    "work": "claim tasks and finish them, as an agent over HTTP",
    "answer": "answer questions of tasks, and approve what they ask for",
    "reveal": "see the secrets of payloads",
    "admin": "everything, keys, webhooks and workspaces included",
}


# What the actor of a key begins with.
_KEY = "key:"


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a key. `actor` is their name in the log; `workspace` None: bound to none.

    `pools` are the agent types that they may work for, and `agents` the agents that they may be; None: all.
    """

    actor: str
    workspace: str | None
    scopes: frozenset[Scope]
    pools: frozenset[str] | None = None
    agents: frozenset[str] | None = None

    @property
    def share(self) -> str:
        """What limits count together: the workspace that the key is bound to, else the key itself."""
        return self.actor if self.workspace is None else f"workspace:{self.workspace}"

    @property
    def key_id(self) -> str | None:
        """The id of the key, None without one."""
        return self.actor.removeprefix(_KEY) if self.actor.startswith(_KEY) else None

    def reaches(self, workspace: str | None) -> bool:
        """Say whether a workspace exists for them; None is what belongs to no single one."""
        return self.workspace is None or self.workspace == workspace

    def may(self, scope: Scope, workspace: str | None) -> bool:
        """Say whether they may do what takes `scope`, in a workspace.

        `admin` is all of them: a user who may create any key may do anything.
        """
        return self.reaches(workspace) and (scope in self.scopes or "admin" in self.scopes)

    def may_work_for(self, agent_type: str) -> bool:
        """Return whether they may claim and finish tasks of an agent type."""
        return self.pools is None or agent_type in self.pools

    def may_be(self, agent: str) -> bool:
        """Return whether they may speak and work as an agent."""
        return self.agents is None or agent in self.agents

    def as_agent(self, agent: str | None) -> str | None:
        """Return as which agent they speak or work: the only one that they may be, unless they say which.

        Raises PermissionDeniedError if they may not be that one, or several and have not said which.
        """
        if self.agents is None:
            return agent
        if agent is None and len(self.agents) == 1:
            return next(iter(self.agents))
        if agent is None or agent not in self.agents:
            raise PermissionDeniedError(f"this key is bound to the agents {', '.join(sorted(self.agents))}")
        return agent


def holder(
    key_id: str,
    workspace: str | None,
    names: Iterable[str],
    pools: Iterable[str] | None = None,
    agents: Iterable[str] | None = None,
) -> Principal:
    """Return who holds a key. Scopes that only a later version knows are left out."""
    known = frozenset(names)
    scopes = frozenset(scope for scope in SCOPES if scope in known)
    bound = (None if some is None else frozenset(some) for some in (pools, agents))
    return Principal(f"{_KEY}{key_id}", workspace, scopes, *bound)


# The holder of the token that the API printed at its start, until there is a key.
BOOTSTRAP = Principal("bootstrap", None, frozenset({"admin"}))


def pools(names: Iterable[str]) -> list[str]:
    """Return the agent types that a key is bound to, sorted. Raises InvalidInputError: `bad_pool`."""
    return _bound(names, "pool")


def agents(names: Iterable[str]) -> list[str]:
    """Return the agents that a key is bound to, sorted. Raises InvalidInputError: `bad_agent`."""
    return _bound(names, "agent")


def _bound(names: Iterable[str], kind: str) -> list[str]:
    found = sorted({token(name, name=kind) for name in names})
    if not 0 < len(found) <= MOST_POOLS:
        raise InvalidInputError(
            f"bad_{kind}", f"a key is bound to 1 to {MOST_POOLS} {kind}s, or to none in particular"
        )
    return found


def scopes(names: Iterable[str]) -> frozenset[Scope]:
    """Return scopes by their names; `InvalidInputError('bad_scope')` where there is none, or no such one."""
    said = frozenset(names)
    known = frozenset(scope for scope in SCOPES if scope in said)
    if not known or len(known) < len(said):
        raise InvalidInputError("bad_scope", f"scopes are one or more of {', '.join(SCOPES)}")
    return known
