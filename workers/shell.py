"""Commands as tasks: JSON in on standard input, JSON out on standard output, the exit code decides.

A message never chooses what is executed, only which entry of the operator's table:
`GRNS_SHELL_COMMANDS='{"resize": ["python3", "/srv/resize.py"]}' grns worker workers.shell:pool`.
Exit code 0: the output is the result. 64 to 78 (sysexits.h): failed; but 75 (EX_TEMPFAIL), any other
code and a signal are retried. However an attempt ends, the command's whole process group is killed.
"""

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, Field

import grns

COMMANDS: dict[str, list[str]] = json.loads(os.environ.get("GRNS_SHELL_COMMANDS", "{}"))
OUTPUT_BYTES, COMPLAINT_BYTES = 256 * 1024, 2000
pool = grns.Pool("shell")


class Run(BaseModel):
    """An entry of the table, what it reads, and how long it may take."""

    command: str
    input: Any = None
    timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] = 300.0


@pool.task("run")
async def run(task: grns.Context, wanted: Run) -> Any:
    """Run one command to its end."""
    if (command := COMMANDS.get(wanted.command)) is None:
        raise grns.Fail(f"there is no command {wanted.command!r} here", error_class="unknown_command")
    # Our own settings hold passwords: the command gets to know only its task.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GRNS_")}
    env |= {"GRNS_TASK_ID": task.id, "GRNS_ATTEMPT": str(task.attempt)}
    start = partial(asyncio.create_subprocess_exec, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    starting = asyncio.create_task(start(*command, env=env, start_new_session=True))
    try:
        async with asyncio.timeout(wanted.timeout_seconds):
            process = await asyncio.shield(starting)
            reads = _end_of(process.stdout, OUTPUT_BYTES), _end_of(process.stderr, COMPLAINT_BYTES)
            output, complaint, _ = await asyncio.gather(*reads, _tell(process.stdin, wanted.input))
            return _judge(await process.wait(), output, complaint.decode(errors="replace"))
    finally:
        process = await starting  # one that is cancelled while it starts has children already
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _tell(stream: Any, document: Any) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # it need not read
        stream.write(json.dumps(document).encode())
        await stream.drain()
    stream.close()


async def _end_of(stream: asyncio.StreamReader | None, size: int) -> bytes:
    kept = b""
    while stream and (chunk := await stream.read(65536)):
        kept = (kept + chunk)[-size:]
    return kept


def _judge(code: int, output: bytes, complaint: str) -> Any:
    try:
        if code == 0:
            return json.loads(output or b"null")
    except ValueError as error:  # too much output has lost its beginning, and is no JSON either
        raise grns.Fail(f"the output is no JSON: {error}", error_class="bad_output") from error
    error_class = f"exit_{code}" if code > 0 else f"signal_{-code}"
    is_final = 64 <= code <= 78 and code != os.EX_TEMPFAIL
    raise (grns.Fail if is_final else grns.Retry)(complaint, error_class=error_class)
