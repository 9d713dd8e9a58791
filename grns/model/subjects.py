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
# A message has at most so many envelopes, one on each line. More than one only on priority subjects.
MOST_ENVELOPES = 16
SUBMIT = "cmd.task.submit"
CANCEL = "cmd.task.cancel"
SIGNAL = "cmd.task.signal"
# What other systems may send, as commands and as requests.
SERVED = (SUBMIT, CANCEL, SIGNAL)
# A request to any agent of a type, or mail to one agent: see `agent_command`.
AGENTS = "cmd.agent.*.*"

# What handlers stream while they run, in memory only: `out.task.<task_id>.v1[.<workspace>]`.
OUT_STREAM, OUTPUT = "GRNS_OUT", "out.task"

# Instead of a workspace: all workspaces but the default one, which subjects do not name.
OTHER_WORKSPACES = "*"
# Prefixes of a command and of the same message as a request.
COMMAND, _REQUEST = "cmd.", "req."

# Hints between processes, on core NATS without a stream: a lost one costs only time.
RELAY_NUDGE = f"nudge.relay.{VERSION}"
# To the follower: a task has ended. From it, to workers: tasks wait for others, tell when one ends.
FOLLOW_NUDGE, ENDS_NUDGE = f"nudge.follow.{VERSION}", f"nudge.ends.{VERSION}"

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def token(value: object, *, name: str) -> str:
    """Return `value` if a subject may contain it. Raises InvalidInputError: `bad_name`."""
    if isinstance(value, str) and _TOKEN.match(value):
        return value
    shown = ascii(value)[:100]
    raise InvalidInputError(
        "bad_name", f"{name} must be 1 to 64 of the characters A-Z a-z 0-9 _ -, not {shown}"
    )


def agent_type(value: object) -> str:
    """Return a valid agent type; `instance` is reserved for mailboxes."""
    name = token(value, name="agent_type")
    if name == RESERVED_AGENT_TYPE:
        raise InvalidInputError("bad_name", "agent_type 'instance' is reserved")
    return name


def message(kind: str, workspace: str = DEFAULT_WORKSPACE, route: str | None = None) -> str:
    """Return the subject that a message of `kind` is published on.

    A command that runs a task has the `route` `<agent_type>.p<0-3>`. Other subjects contain the workspace
    unless it is the default one.
    """
    if route is not None:
        return f"{kind}.{VERSION}.{workspace}.{route}"
    if workspace == DEFAULT_WORKSPACE:
        return f"{kind}.{VERSION}"
    return f"{kind}.{VERSION}.{workspace}"


def priority_subject(workspace: str, agent: str, priority: int) -> str:
    """Return the subject of one pool and priority."""
    return message(EXECUTE, workspace, f"{agent}.p{priority}")


def shared_execute(workspace: str = DEFAULT_WORKSPACE) -> str:
    """Return the subject on which any system may request to run a task of `workspace`."""
    return message(EXECUTE, workspace)


def request(kind: str, workspace: str = DEFAULT_WORKSPACE) -> str:
    """Return the subject of a request of `kind`: it is answered and not in a stream."""
    return _REQUEST + message(kind, workspace).removeprefix(COMMAND)


def command_of(subject: str) -> str:
    """Return the subject of the command that a request stands for; other subjects unchanged."""
    return COMMAND + subject.removeprefix(_REQUEST) if subject.startswith(_REQUEST) else subject


def workspace_of(subject: str) -> str:
    """Return the workspace of a subject without other routing.

    Raises:
        InvalidInputError: `bad_name` if it is not a valid name, `bad_subject` if the version is missing.
    """
    routing = parse(subject).routing
    return token(".".join(routing), name="workspace") if routing else DEFAULT_WORKSPACE


def owner(subject: str) -> str:
    """Return the workspace that a rejected message belongs to: the first word after the version.

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


def mail_nudge(workspace: str, agent: str | None) -> str:
    """Return the subject that tells of mail to an agent; None: to many."""
    return f"nudge.mail.{VERSION}.{workspace}.{agent or '_'}"


def routed_nudge(workspace: str, agent_type: str) -> str:
    """Return the subject that tells the agents of a pool of a task that only some of them may run.

    The body is its route.
    """
    return f"nudge.routed.{VERSION}.{workspace}.{agent_type}"


def task_nudge(workspace: str, agent: str) -> str:
    """Return the subject that tells one worker of a pool of a task that was submitted just now."""
    return f"nudge.task.{VERSION}.{workspace}.{agent}"


def durable(filter_subject: str) -> str:
    """Return the name of the durable that serves `filter_subject`.

    The shared subjects have readable names, priority subjects a digest: joined names would collide (`a_b` +
    `c` and `a` + `b_c`).
    """
    readable = {
        message(EXECUTE): "execute",
        **{message(kind): kind.rpartition(".")[2] for kind in SERVED},
        **{message(kind, OTHER_WORKSPACES): f"{kind.rpartition('.')[2]}_workspaces" for kind in SERVED},
        message(AGENTS): "agent",
        message(AGENTS, OTHER_WORKSPACES): "agent_workspaces",
    }
    if filter_subject in readable:
        return readable[filter_subject]
    return "execute_" + hashlib.sha256(filter_subject.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parts of a subject."""

    kind: str
    version: str
    routing: tuple[str, ...]


def parse(subject: str) -> Parsed:
    """Return the parts of a subject. Raises InvalidInputError: `bad_subject`.

    A kind has at least three words, one of agents four: `v1` may also be an agent type.
    """
    tokens = subject.split(".")
    shortest = 4 if tokens[1:2] == ["agent"] else 3
    for place, part in enumerate(tokens):
        if place >= shortest and re.fullmatch(r"v[0-9]+", part):
            return Parsed(".".join(tokens[:place]), part, tuple(tokens[place + 1 :]))
    raise InvalidInputError("bad_subject", f"the subject {ascii(subject)[:100]} has no version token")


def matches(pattern: str, subject: str) -> bool:
    """Return whether a subject matches a pattern with `*` (one token) and `>` (the rest)."""
    words, tokens = pattern.split("."), subject.split(".")
    for place, word in enumerate(words):
        if word == ">":
            return len(tokens) > place
        if place >= len(tokens) or word not in ("*", tokens[place]):
            return False
    return len(tokens) == len(words)
