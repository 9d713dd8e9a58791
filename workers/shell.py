"""Commands as tasks: JSON in on standard input, JSON out on standard output, the exit code decides.

A message never chooses what is executed, only which entry of the operator's table:
`GRNS_SHELL_COMMANDS='{"resize": ["python3", "/srv/resize.py"]}' grns worker start workers.shell:pool`.
Exit code 0: the output is the result. 64 to 78 (sysexits.h): failed; but 75 (EX_TEMPFAIL), any other
code and a signal are retried. However an attempt ends, the command's whole process group is killed.
"""

import asyncio
import json
import os
import signal
from contextlib import closing, suppress
from typing import Annotated, Any

from pydantic import BaseModel, Field

import grns

COMMANDS: dict[str, list[str]] = json.loads(os.environ.get("GRNS_SHELL_COMMANDS", "{}"))
KEPT_BYTES = {1: 256 * 1024, 2: 2000}  # of what it writes, the end
pool = grns.Pool("shell")


class Run(BaseModel):
    """An entry of the table, what it reads, and how long it may take."""

    command: str
    input: Any = None
    timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] = 300.0


class Talk(asyncio.SubprocessProtocol):
    """What one command has written; with the command ends what it started, which holds its output open."""

    def connection_made(self, process: Any) -> None:
        self.process, self.written, self.closed = process, {1: b"", 2: b""}, asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.written[fd] = (self.written[fd] + data)[-KEPT_BYTES[fd] :]

    def process_exited(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.get_pid(), signal.SIGKILL)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


@pool.task("run")
async def run(task: grns.Context, wanted: Run) -> Any:
    """Run one command to its end."""
    if (command := COMMANDS.get(wanted.command)) is None:
        raise grns.Fail(f"there is no command {wanted.command!r} here", error_class="unknown_command")
    # Our own settings hold passwords: the command gets to know only its task.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GRNS_")}
    env |= {"GRNS_TASK_ID": task.id, "GRNS_ATTEMPT": str(task.attempt)}
    start = asyncio.get_running_loop().subprocess_exec(Talk, *command, env=env, start_new_session=True)
    starting: asyncio.Task[Any] = asyncio.create_task(start)
    try:
        async with asyncio.timeout(wanted.timeout_seconds):
            process, talk = await asyncio.shield(starting)
            with suppress(RuntimeError), closing(process.get_pipe_transport(0)) as stdin:
                stdin.write(json.dumps(wanted.input).encode())  # uvloop raises if the command has ended
            await talk.closed.wait()
            return _judge(process.get_returncode(), talk.written[1], talk.written[2].decode(errors="replace"))
    finally:
        process, talk = await starting  # one that is cancelled while it starts has children already
        process.close()  # and with that it is killed, if it has not ended
        await talk.closed.wait()


def _judge(code: int, output: bytes, complaint: str) -> Any:
    if code != 0:
        kind = grns.Fail if 64 <= code <= 78 and code != os.EX_TEMPFAIL else grns.Retry
        raise kind(complaint, error_class=f"exit_{code}" if code > 0 else f"signal_{-code}")
    try:
        return json.loads(output or b"null")
    except ValueError as error:  # too much output has lost its beginning, and is no JSON either
        raise grns.Fail(f"the output is no JSON: {error}", error_class="bad_output") from error
