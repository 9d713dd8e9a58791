"""`grns-agent`: verbs for agents that are written in shell, over the HTTP API."""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grns.agent.http import AgentHttp
from grns.errors import GrnsError, InvalidInputError, UnavailableError
from grns.model.failure import clean
from grns.model.json import Limits, dumps

NOTHING = 9
"""Exit code if there is no task or no message."""

_SECONDS = 90.0
_PATIENCE_SECONDS = 45.0
_VALUES = Limits(document_bytes=2**31, depth=500, nodes=2**31)
_DESCRIPTION = """Claim tasks and report their outcomes from a shell script.

GRNS_API_URL and GRNS_API_KEY are the URL of the API and a key with the scope `work`; GRNS_WORKSPACE is for
keys of all workspaces. `next` prints GRNS_TOKEN, which the other commands about a task read from the
environment."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    said = _parser().parse_args(arguments)
    try:
        return int(said.run(_http(), said) or 0)
    except GrnsError as error:
        sys.stderr.write(f"grns-agent: {error}\n")
        return error.exit_code


def _http() -> AgentHttp:
    key = os.environ.get("GRNS_API_KEY")
    if not key:
        raise InvalidInputError("no_key", "GRNS_API_KEY is not set")
    url = os.environ.get("GRNS_API_URL", "http://127.0.0.1:8080")
    return AgentHttp(url, key=key, workspace=os.environ.get("GRNS_WORKSPACE"))


def _next(http: AgentHttp, said: argparse.Namespace) -> int:
    options = {"agent": said.agent, "lease_seconds": said.lease}
    life = os.environ.get("GRNS_AGENT_LIFE") or _life()
    body = {"agent_type": said.pool, "task_types": said.types, "wait_seconds": said.wait, "life": life}
    body |= {name: value for name, value in options.items() if value is not None}
    claimed = _post(http, "/queue/claim", body)
    if claimed is None:
        return NOTHING
    if said.json:
        _print(claimed)
        return 0
    task = claimed["task"]
    sys.stdout.write(f"export GRNS_TOKEN={shlex.quote(claimed['token'])}\n")
    # Not exported: no program could be started with a payload of 128 KiB in its environment.
    for name, value in (
        ("GRNS_TASK_ID", task["id"]), ("GRNS_TASK_TYPE", task["task_type"]),
        ("GRNS_ATTEMPT", task["attempt"]), ("GRNS_PAYLOAD", json.dumps(task["payload"], ensure_ascii=False)),
        ("GRNS_CHECKPOINT", json.dumps(task["checkpoint_data"], ensure_ascii=False)),
    ):  # fmt: skip
        sys.stdout.write(f"{name}={shlex.quote(str(value))}\n")
    return 0


def _life() -> str:
    """Return what tells one run of a script from the next, and is the same in its pipes and subshells.

    A subshell is a fork of its script: it has the same command line, which who starts scripts has not.
    """
    try:
        script = os.getppid()
        while (parent := int(_stat(script)[1])) and _command_line(parent) == _command_line(script):
            script = parent
        began = _stat(script)[19]
        booted = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except (OSError, IndexError):  # another system
        return f"shell-{os.getppid()}"
    return f"shell-{script}-{began}-{booted}"


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _beat(http: AgentHttp, said: argparse.Namespace) -> int:
    body: dict[str, Any] = {"token": _token()}
    if said.percent is not None:
        body["progress_percent"] = said.percent
    if said.step is not None:
        body["current_step"] = clean(said.step)[:255]
    if said.checkpoint is not None:
        body["checkpoint_data"] = _json(said.checkpoint)
    answer = _post(http, "/queue/renew", body)
    _print(answer)
    return 1 if answer["cancel_requested"] or answer["order"] == "stop" else 0


def _done(http: AgentHttp, said: argparse.Namespace) -> None:
    _print(_ended(http, "/queue/complete", {"token": _token(), "result": _json(said.result)}))


def _fail(http: AgentHttp, said: argparse.Namespace) -> None:
    body: dict[str, Any] = {
        "token": _token(),
        "error": {
            "class": clean(said.error_class)[:255] or "AgentError", "message": clean(said.message)[:4000],
        },
        "retry": not said.final,
    }  # fmt: skip
    if said.after is not None:
        body["retry_after_seconds"] = said.after
    _print(_ended(http, "/queue/fail", body))


def _release(http: AgentHttp, said: argparse.Namespace) -> None:
    _print(
        _ended(http, "/queue/release", {"token": _token(), "reason": clean(said.reason)[:1000] or "released"})
    )


def _send(http: AgentHttp, said: argparse.Namespace) -> None:
    body: dict[str, Any] = {"type": said.type, "payload": _json(said.payload)}
    for name in ("to", "pool", "sender", "about", "reply_to"):
        if getattr(said, name) is not None:
            body[name] = getattr(said, name)
    if os.environ.get("GRNS_TOKEN") and not said.no_task:
        body["token"] = _token()
    body["message_id"] = said.id or str(uuid.uuid4())
    _print(_ended(http, "/mail", body))


def _read(http: AgentHttp, said: argparse.Namespace) -> int:
    body = {"limit": said.limit, "wait_seconds": said.wait}
    found = _post(http, f"/agents/{said.agent}/mail/poll", body)["items"]
    for one in found:
        _print(one)
    return 0 if found else NOTHING


def _ack(http: AgentHttp, said: argparse.Namespace) -> None:
    _print(_post(http, f"/agents/{said.agent}/mail/ack", {"ids": said.ids}))


def _ended(http: AgentHttp, path: str, body: dict[str, Any]) -> Any:
    """Send what may be repeated until it is answered: an API that starts again costs no finished work."""
    until, pause = time.monotonic() + _PATIENCE_SECONDS, 0.2
    while True:
        try:
            return _post(http, path, body)
        except UnavailableError:
            if time.monotonic() > until:
                raise
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, 5.0)


def _post(http: AgentHttp, path: str, body: dict[str, Any]) -> Any:
    return http.post_blocking(path, body, seconds=_SECONDS)


def _token() -> str:
    token = os.environ.get("GRNS_TOKEN")
    if not token:
        raise InvalidInputError(
            "no_token", 'GRNS_TOKEN is not set: CLAIM=$(grns-agent next …) && eval "$CLAIM"'
        )
    return token


def _json(text: str) -> Any:
    try:
        found = json.loads(sys.stdin.read() if text == "-" else text)
        dumps(found, _VALUES)
        return found
    except (ValueError, RecursionError, InvalidInputError) as error:
        raise InvalidInputError("bad_json", f"not JSON: {error}") from error


def _print(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "grns-agent", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")

    def verb(name: str, run: Any, told: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=told, description=told)
        made.set_defaults(run=run)
        return made

    one = verb(
        "next",
        _next,
        f'claim a task: CLAIM=$(grns-agent next …) && eval "$CLAIM"; {NOTHING} if there is none',
    )
    one.add_argument("--type", dest="types", action="append", required=True, metavar="NAME")
    one.add_argument("--pool", default="worker")
    one.add_argument("--agent", help="your name, if you are registered")
    one.add_argument("--wait", type=float, default=20.0, metavar="SECONDS")
    one.add_argument("--lease", type=float, metavar="SECONDS")
    one.add_argument("--json", action="store_true", help="print JSON instead of variables")
    one = verb("beat", _beat, "renew the lease, and report progress; 1 if you should stop")
    one.add_argument("--percent", type=float)
    one.add_argument("--step", metavar="TEXT")
    one.add_argument("--checkpoint", metavar="JSON", help="for the next attempt")
    one = verb("done", _done, "end the task with a result")
    one.add_argument("result", nargs="?", default="null", metavar="JSON", help="- for standard input")
    one = verb("fail", _fail, "end the attempt as failed")
    one.add_argument("message")
    one.add_argument("--class", dest="error_class", default="AgentError", metavar="NAME")
    one.add_argument("--final", action="store_true", help="another attempt would not help")
    one.add_argument("--after", type=float, metavar="SECONDS", help="delay of the next attempt")
    one = verb("release", _release, "give the task back")
    one.add_argument("--reason", default="released")
    one = verb("send", _send, "send mail to an agent")
    one.add_argument("type")
    one.add_argument("--payload", default="{}", metavar="JSON")
    for name in ("to", "pool", "about"):
        one.add_argument(f"--{name}")
    one.add_argument("--from", dest="sender", metavar="NAME")
    one.add_argument("--reply-to", metavar="ID")
    one.add_argument("--id", help="id of the message, a UUID: it is sent once")
    one.add_argument("--no-task", action="store_true", help="do not send it as the task in GRNS_TOKEN")
    one = verb(
        "read", _read, f"print the mail of an agent, one JSON document a line; {NOTHING} if there is none"
    )
    one.add_argument("agent")
    one.add_argument("--limit", type=int, default=100)
    one.add_argument("--wait", type=float, default=0.0, metavar="SECONDS")
    one = verb("ack", _ack, "acknowledge mail")
    one.add_argument("agent")
    one.add_argument("ids", nargs="+", metavar="ID")
    return parser


if __name__ == "__main__":
    sys.exit(main())
