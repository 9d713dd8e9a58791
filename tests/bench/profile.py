"""`make profile`: where worker and relay spend their time on the whole way: flame graphs, by py-spy."""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console

from tests.bench.ground import Ground, ground
from tests.bench.whole_way import begin

_WARM_TASKS = 5_000
_PART_TASKS = 10_000
_SAMPLES_PER_SECOND = 250
_PROFILED = {"worker": "worker", "server": "relay"}  # the relay runs with the other daemons in one process
_SPY = Path(sys.executable).parent / "py-spy"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, profile, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make profile", description=__doc__)
    parser.add_argument("directory", type=Path, help="where the pictures go")
    parser.add_argument("--seconds", type=int, default=20, help="for how long (20)")
    options = parser.parse_args(arguments)
    if not _SPY.exists():
        parser.error("this needs py-spy: pip install --group bench")
    options.directory.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="grns-profile-"))
    directory.chmod(0o755)
    try:
        drawn = uvloop.run(_profile(directory, options.directory, options.seconds))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for path in drawn:
        _retitle(path)
        Console().print(f"drawn: {path}", markup=False)
    return 0


async def _profile(directory: Path, pictures: Path, seconds: int) -> list[Path]:
    async with ground(directory) as here:
        return await _on(here, pictures, seconds)


async def _on(here: Ground, pictures: Path, seconds: int) -> list[Path]:
    async with here.stage() as stage:
        await begin(stage, _WARM_TASKS)
        drawn = [pictures / f"profile-{name}.svg" for name in _PROFILED.values()]
        spying = [
            asyncio.ensure_future(_spy(stage.pid(role), path, seconds))
            for role, path in zip(_PROFILED, drawn, strict=True)
        ]
        while not all(task.done() for task in spying):
            await stage.pass_through(_PART_TASKS)
        await asyncio.gather(*spying)
        return drawn


async def _spy(pid: int, path: Path, seconds: int) -> None:
    """Draw one process; raises `RuntimeError` with what py-spy says where it may not look."""
    spy = await asyncio.create_subprocess_exec(
        str(_SPY), "record", "--pid", str(pid), "--duration", str(seconds),
        "--rate", str(_SAMPLES_PER_SECOND), "--nonblocking", "--output", str(path),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await spy.communicate()
    if spy.returncode != 0:
        raise RuntimeError(f"py-spy: {said.decode(errors='replace').strip()}")


def _retitle(path: Path) -> None:
    """Let a picture say what it shows: py-spy's title is its command line, with paths of this machine."""
    title = f"where the {path.stem.removeprefix('profile-')} spends its time, the whole way"
    path.write_text(re.sub(rf"{re.escape(str(_SPY))} record [^<]*", title, path.read_text()))


if __name__ == "__main__":
    sys.exit(main())
