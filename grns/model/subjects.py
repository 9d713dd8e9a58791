"""The grammar of subjects: `<kind>.v1[.<routing tokens>]`.

Every name that becomes part of a subject passes `token` first, so that no dot,
wildcard, space or control character ever reaches the broker.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from grns.errors import InvalidInputError

VERSION = "v1"
DEFAULT_WORKSPACE = "default"
# For messages whose subject names a workspace that cannot exist. You cannot create it, so only API keys of
# all workspaces see them.
UNKNOWN_WORKSPACE = "_unknown"
# Of events that concern no single workspace, such as those of keys of all workspaces.
INSTALLATION = "_installation"
# No workspace has such a name.
RESERVED_WORKSPACES = frozenset({UNKNOWN_WORKSPACE, INSTALLATION})
RESERVED_AGENT_TYPE = "instance"
PRIORITIES = (0, 1, 2, 3)

CMD_STREAM, EVT_STREAM, DLQ_STREAM = "GRNS_CMD", "GRNS_EVT", "GRNS_DLQ"
STREAM_OF = {"cmd": CMD_STREAM, "evt": EVT_STREAM, "dlq": DLQ_STREAM}

EXECUTE = "cmd.task.execute"
SUBMIT = "cmd.task.submit"
CANCEL = "cmd.task.cancel"

# In the place of a workspace: all of them but the default one, which is not named.
OTHER_WORKSPACES = "*"
# How the subject of a command begins, and how that of the same message does where it is to be answered.
COMMAND, _REQUEST = "cmd.", "req."

# Hints between processes, on core NATS and in no stream: losing one costs only delay.
RELAY_NUDGE = f"nudge.relay.{VERSION}"

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def token(value: object, *, name: str) -> str:
    """Return `value` if it may stand in a subject, else raise `InvalidInputError('bad_name')`."""
    if isinstance(value, str) and _TOKEN.match(value):
        return value
    shown = ascii(value)[:100]
    raise InvalidInputError(
        "bad_name", f"{name} must be 1 to 64 of the characters A-Z a-z 0-9 _ -, not {shown}"
    )


def agent_type(value: object) -> str:
    """Return `value` if it names a type of agent; `instance` is reserved for mailboxes."""
    name = token(value, name="agent_type")
    if name == RESERVED_AGENT_TYPE:
        raise InvalidInputError("bad_name", "agent_type 'instance' is reserved")
    return name


def message(kind: str, workspace: str = DEFAULT_WORKSPACE, route: str | None = None) -> str:
    """Return the subject that a message of `kind` is published on.

    A command that runs a task is routed into its lane (`route` is `<agent_type>.p<0-3>`);
    anything else carries the workspace only where it is not the default one.
    """
    if route is not None:
        return f"{kind}.{VERSION}.{workspace}.{route}"
    if workspace == DEFAULT_WORKSPACE:
        return f"{kind}.{VERSION}"
    return f"{kind}.{VERSION}.{workspace}"


def priority_subject(workspace: str, agent: str, priority: int) -> str:
    """Return the subject of one lane: the tasks of one agent type and priority."""
    return message(EXECUTE, workspace, f"{agent}.p{priority}")


def shared_execute(workspace: str = DEFAULT_WORKSPACE) -> str:
    """Return the subject on which any system may ask for a task of `workspace` to be run."""
    return message(EXECUTE, workspace)


def request(kind: str, workspace: str = DEFAULT_WORKSPACE) -> str:
    """Return the subject on which a command of `kind` is answered: a request, which is in no stream."""
    return _REQUEST + message(kind, workspace).removeprefix(COMMAND)


def command_of(subject: str) -> str:
    """Return the subject of the command that a request stands for; any other subject is its own."""
    return COMMAND + subject.removeprefix(_REQUEST) if subject.startswith(_REQUEST) else subject


def workspace_of(subject: str) -> str:
    """Return the workspace that a subject without any other routing names.

    `InvalidInputError('bad_name')` where none can be called so, `InvalidInputError('bad_subject')` where it
    has no version.
    """
    routing = parse(subject).routing
    return token(".".join(routing), name="workspace") if routing else DEFAULT_WORKSPACE


def owner(subject: str) -> str:
    """Return the workspace that a rejected message is filed under: the first word after the version.

    `default` if the subject names no workspace, `_unknown` if that word cannot be the name of one.
    """
    try:
        routing = parse(command_of(subject)).routing
    except InvalidInputError:
        return DEFAULT_WORKSPACE
    if not routing:
        return DEFAULT_WORKSPACE
    return routing[0] if _TOKEN.match(routing[0]) else UNKNOWN_WORKSPACE


def lease_nudge(agent_id: str) -> str:
    """Return the subject that asks one worker to renew now (and so to learn of cancellations)."""
    return f"nudge.lease.{VERSION}.{agent_id}"


def durable(filter_subject: str) -> str:
    """Return the name of the durable that serves `filter_subject`.

    The front door and the server's own subjects keep readable names. Lanes get a digest:
    joined names would collide (`a_b` + `c` and `a` + `b_c`).
    """
    readable = {
        message(EXECUTE): "execute",
        message(SUBMIT): "submit",
        message(CANCEL): "cancel",
        message(SUBMIT, OTHER_WORKSPACES): "submit_workspaces",
        message(CANCEL, OTHER_WORKSPACES): "cancel_workspaces",
    }
    if filter_subject in readable:
        return readable[filter_subject]
    return "execute_" + hashlib.sha256(filter_subject.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a subject says: the kind, its version and the routing tokens behind it."""

    kind: str
    version: str
    routing: tuple[str, ...]


def parse(subject: str) -> Parsed:
    """Take a subject apart; `InvalidInputError('bad_subject')` where it has no version token.

    A kind has three words at least, one of agents four: `v1` may also be the name of an agent type.
    """
    tokens = subject.split(".")
    shortest = 4 if tokens[1:2] == ["agent"] else 3
    for place, part in enumerate(tokens):
        if place >= shortest and re.fullmatch(r"v[0-9]+", part):
            return Parsed(".".join(tokens[:place]), part, tuple(tokens[place + 1 :]))
    raise InvalidInputError("bad_subject", f"the subject {ascii(subject)[:100]} has no version token")


def matches(pattern: str, subject: str) -> bool:
    """Return whether a subject fits a pattern with `*` (one token) and `>` (the rest)."""
    wanted, tokens = pattern.split("."), subject.split(".")
    for place, want in enumerate(wanted):
        if want == ">":
            return len(tokens) > place
        if place >= len(tokens) or want not in ("*", tokens[place]):
            return False
    return len(tokens) == len(wanted)
