"""Which subjects each component of grns needs at the broker: one NATS user per component.

`authorization` writes them as a block of nats-server's configuration; `docs/security.md` says what each user
can do if its password is stolen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from grns.model import subjects
from grns.settings import Settings

_STREAMS = (subjects.CMD_STREAM, subjects.EVT_STREAM, subjects.DLQ_STREAM)
_NUDGE_LEASES = subjects.lease_nudge("*")
_NUDGE_TASKS = subjects.task_nudge("*", "*")
_NUDGE_ROUTED = subjects.routed_nudge("*", "*")
_NUDGE_MAIL = subjects.mail_nudge("*", "*")
_NUDGES = (
    subjects.RELAY_NUDGE, subjects.FOLLOW_NUDGE, subjects.ENDS_NUDGE, _NUDGE_LEASES, _NUDGE_TASKS,
    _NUDGE_MAIL,
)  # fmt: skip
# The durables of the request desk.
_DESK = tuple(
    subjects.durable(subjects.message(kind, workspace))
    for workspace in (subjects.DEFAULT_WORKSPACE, subjects.OTHER_WORKSPACES)
    for kind in (*subjects.SERVED, subjects.AGENTS)
)


@dataclass(frozen=True, slots=True)
class User:
    """A NATS user and the subjects that it may publish and subscribe to. `purpose` is for people.

    Its inboxes begin with `_INBOX_<name>`: no other user can read the answers to its requests.
    """

    name: str
    purpose: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...] = ()
    may_answer: bool = False

    @property
    def inbox(self) -> str:
        """What GRNS_NATS_INBOX_PREFIX has to be for this user."""
        return f"_INBOX_{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable of nats-server that holds the password."""
        return f"GRNS_NATS_PASSWORD_{self.name.upper().replace('-', '_')}"


def users(settings: Settings, *, pools: Sequence[str] = (), workspaces: Sequence[str] = ()) -> list[User]:
    """Return the users of an installation.

    With `pools`, each of them has a worker's user of its own, for the workspace of the settings. Each of the
    `workspaces` has a `submitter` and a `listener`, for clients in any language. Raises InvalidInputError:
    `bad_name`.
    """
    prefix = settings.nats_prefix
    commands, events, letters = (prefix + name for name in _STREAMS)
    nudges = tuple(prefix + subject for subject in _NUDGES)
    bus = tuple(f"{prefix}{root}.>" for root in ("cmd", "evt", "dlq"))
    streams = (commands, events, letters)
    outputs = f"{prefix}{subjects.OUT_STREAM}"
    watch_output = (f"$JS.API.DIRECT.GET.{outputs}", *_api("STREAM.INFO", outputs))
    output = f"{prefix}{subjects.OUTPUT}.>"
    readable = _api("STREAM.INFO", *streams) + _api("CONSUMER.LIST", *streams)
    manage = _merged(_api(f"STREAM.{verb}", *streams) for verb in ("INFO", "CREATE", "UPDATE"))
    doors = [prefix + subjects.request(kind) for kind in (*subjects.SERVED, subjects.AGENTS)]
    relay = User(
        "relay",
        "grns daemon relay: publishes the log",
        (
            *bus,
            *manage,
            *_api("STREAM.MSG.GET", *streams),
            *(
                subject
                for verb in ("INFO", "CREATE", "UPDATE")
                for subject in _api(f"STREAM.{verb}", outputs)
            ),
            prefix + subjects.FOLLOW_NUDGE,
            prefix + _NUDGE_ROUTED,
        ),
        (prefix + subjects.RELAY_NUDGE, prefix + subjects.ENDS_NUDGE),
    )
    gateway = User(
        "gateway",
        "grns daemon command-server: takes in what clients ask for",
        (*nudges, *_durables(commands, _DESK)),
        tuple(subject for door in doors for subject in (door, f"{door}.*")),
        may_answer=True,
    )
    janitor = User(
        "janitor",
        "grns daemon janitor: measures queues, keeps pauses, stores commands without a worker",
        (
            *nudges,
            *readable,
            *_api("STREAM.MSG.GET", commands),
            *_api("STREAM.MSG.DELETE", commands),
            *_api("CONSUMER.INFO", f"{commands}.*"),
            *_api("CONSUMER.PAUSE", f"{commands}.*"),
        ),
    )
    daemon = User(
        "daemon",
        "reaper, scheduler, operation runner, stats aggregator, webhook sender",
        nudges,
        (prefix + subjects.FOLLOW_NUDGE,),
    )
    api = User(
        "api",
        "grns daemon api: the HTTP API, the dashboard, and agents over HTTP",
        (*nudges, f"{prefix}cmd.>", output, *readable, *watch_output, *_durables(commands, ("*",))),
        (output, prefix + _NUDGE_MAIL, prefix + _NUDGE_ROUTED),
    )
    server = User(
        "server",
        "grns server: all daemons in one process; with --api also the API",
        _merged(one.publish for one in (relay, gateway, janitor, daemon, api)),
        _merged(one.subscribe for one in (relay, gateway, janitor, daemon, api)),
        may_answer=True,
    )
    found = [
        relay,
        gateway,
        janitor,
        daemon,
        api,
        server,
        *_workers(settings, commands, nudges, pools),
        User(
            "subscriber",
            "programs that call client.subscribe; they have the database's URL, too",
            (*nudges, *_durables(events, ("*",))),
        ),
        User(
            "client",
            "programs that submit, and watch what tasks stream, with the database's URL",
            (*nudges, *watch_output),
            (output, prefix + _NUDGE_MAIL),
        ),
        User(
            "admin",
            "you: grns broker, doctor, events replay, pool pause, task tail",
            ("$JS.API.>", *bus, *nudges),
            (output,),
        ),
    ]
    for workspace in workspaces:
        found += _of_workspace(prefix, subjects.token(workspace, name="workspace"))
    return found


def _workers(
    settings: Settings, commands: str, nudges: tuple[str, ...], pools: Sequence[str]
) -> Iterable[User]:
    prefix = settings.nats_prefix
    told = (prefix + _NUDGE_LEASES, prefix + subjects.ENDS_NUDGE, prefix + _NUDGE_MAIL)
    if not pools:
        heard: tuple[str, ...] = (*told, prefix + _NUDGE_TASKS, prefix + _NUDGE_ROUTED)
        rights = (*nudges, f"{prefix}{subjects.OUTPUT}.>", *_durables(commands, ("*",)))
        yield User("worker", "workers of any pool", rights, heard)
    for pool in pools:
        served = [subjects.shared_execute(settings.workspace)]
        agent = subjects.agent_type(pool)
        served += [
            subjects.priority_subject(settings.workspace, agent, priority) for priority in subjects.PRIORITIES
        ]
        names = [subjects.durable(prefix + subject) for subject in served]
        output = prefix + subjects.message(f"{subjects.OUTPUT}.*", settings.workspace)
        rights = (*nudges, output, *_durables(commands, names))
        ours = (settings.workspace, agent)
        heard = (*told, *(prefix + nudge(*ours) for nudge in (subjects.task_nudge, subjects.routed_nudge)))
        yield User(f"worker-{pool}", f"workers of the pool {pool}", rights, heard)


def _of_workspace(prefix: str, workspace: str) -> Iterable[User]:
    kinds = (*subjects.SERVED, subjects.AGENTS)
    asked = [subjects.request(kind, workspace) for kind in kinds]
    sent = [subjects.message(kind, workspace) for kind in (*kinds, subjects.EXECUTE)]
    yield User(
        f"submitter-{workspace}",
        f"systems that create, cancel and signal tasks of {workspace}, and write to agents",
        tuple(prefix + subject for subject in (*asked, *sent)),
    )
    behind = "" if workspace == subjects.DEFAULT_WORKSPACE else f".{workspace}"
    roots = ("evt.*.*", "evt.agent.*.*", "dlq.task.*", f"{subjects.OUTPUT}.*")
    heard = [f"{root}.{subjects.VERSION}{behind}" for root in roots]
    yield User(
        f"listener-{workspace}",
        f"systems that follow the events of {workspace}, payloads of dead tasks included",
        (),
        tuple(prefix + subject for subject in heard),
    )


def authorization(found: Sequence[User], passwords: Mapping[str, str] | None = None) -> str:
    """Return the block for nats-server's configuration.

    Without `passwords` by the users' names, nats-server takes each from its environment (`User.variable`).
    """
    blocks = []
    for user in found:
        password = f"${user.variable}" if passwords is None else json.dumps(passwords[user.name])
        publish, subscribe = _listed(user.publish), _listed((*user.subscribe, f"{user.inbox}.>"))
        answers = "\n        allow_responses: true" if user.may_answer else ""
        blocks.append(
            f"    # {user.purpose}; GRNS_NATS_INBOX_PREFIX={user.inbox}\n"
            f"    {{\n      user: {json.dumps(user.name)}, password: {password}\n"
            f"      permissions {{\n        publish: {publish}\n"
            f"        subscribe: {subscribe}{answers}\n      }}\n    }}"
        )
    return "authorization {\n  users: [\n" + "\n".join(blocks) + "\n  ]\n}\n"


def _listed(allowed: Sequence[str]) -> str:
    if not allowed:
        return '{ deny: [">"] }'
    lines = "".join(f"\n          {json.dumps(subject)}" for subject in allowed)
    return f"{{ allow: [{lines}\n        ] }}"


def _api(operation: str, *streams: str) -> tuple[str, ...]:
    return tuple(f"$JS.API.{operation}.{stream}" for stream in streams)


def _durables(stream: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return what it takes to make durables of a stream, to fetch from them, and to acknowledge."""
    return tuple(
        subject
        for name in names
        for subject in (
            *(
                f"$JS.API.CONSUMER.{verb}.{stream}.{name}"
                for verb in ("INFO", "CREATE", "DELETE", "PAUSE", "MSG.NEXT")
            ),
            f"$JS.ACK.{stream}.{name}.>",
        )
    )


def _merged(parts: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(subject for part in parts for subject in part))
