"""`make mutants [COUNT=…]`: bugs sown into a copy of grns, each of which the checks must find.

A check that finds nothing is worth what it finds where there is something. `walks` are those of the model
on Postgres, `storm` is a short `make chaos`, `points` are of `make failpoints`; a mutant that survives its
check is a hole in it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chaos.checker import VIOLATIONS
from tests.chaos.show import progress_on

_ROOT = Path(__file__).parent.parent.parent
_TREES = ("grns", "tests", "workers", "schemas", "pyproject.toml", "README.md")
_SECONDS = 300.0
_FENCE = "t.attempt = w.attempt and t.lease_id = w.lease_id and t.status = 'running'"


@dataclass(frozen=True)
class Mutant:
    """One bug: where, what is written there, what is written instead, and which check has to find it."""

    name: str
    check: str
    place: str
    right: str
    wrong: str
    faults: str = ""  # of which a storm consists, or the points to strike at; all, where nothing is said


def _sql(name: str, statement: str, right: str, wrong: str, check: str = "walks", faults: str = "") -> Mutant:
    return Mutant(name, check, f"grns/store/sql/{statement}.sql", right, wrong, faults)


MUTANTS = (
    _sql("finish without the fence", "finish", f"where {_FENCE}", "where t.status = 'running'"),
    _sql("finish by the attempt alone, whoever has it now", "finish", "t.attempt = w.attempt and t.lease_id = w.lease_id",
         "t.attempt >= w.attempt"),
    _sql("renew without the fence", "renew", f"where {_FENCE}", "where t.status = 'running'"),
    _sql("release without the fence", "release", f"where {_FENCE}", "where t.status = 'running'"),
    _sql("claim what is not due", "claim", "and (t.next_attempt_at is null or t.next_attempt_at <= now())", ""),
    _sql("claim without counting the attempt", "claim", "attempt = t.attempt + 1", "attempt = t.attempt"),
    _sql("claim without its event", "claim", "from claimed c\n)", "from claimed c where false\n)"),
    _sql("reap whoever is running", "reap", "t.lease_until is not null and t.lease_until < now()", "t.lease_until is not null"),
    _sql("a reaper that never buries", "reap", "when t.attempt - t.forgiven >= t.attempt_limit then 'dead'", ""),
    _sql("a reaper that sends no command", "reap", "where r.status = 'queued'", "where false"),
    _sql("a release that spends the attempt", "release",
         "forgiven = t.forgiven + case when l.target = 'queued' and l.is_forgiven then 1 else 0 end",
         "forgiven = t.forgiven"),
    _sql("a release that forgives for ever", "release", "t.released < t.attempt_limit as is_forgiven", "true as is_forgiven"),
    _sql("retries that never end", "finish", "when t.attempt - t.forgiven >= t.attempt_limit then 'dead'", ""),
    _sql("finish that ignores a request to cancel", "finish", "when t.cancel_requested_at is not null then 'cancelled'", ""),
    _sql("dead without a dead letter", "finish", "where f.status in ('failed', 'dead')", "where f.status = 'failed'"),
    _sql("promote what is not due", "promote", "and t.next_attempt_at <= now()", ""),
    _sql("redrive without a fresh budget", "redrive", "forgiven = t.attempt", "forgiven = t.forgiven"),
    _sql("a command with the id of its event", "reap", "select r.version, gen_random_uuid(), r.workspace, r.id, 'cmd.task.execute'",
         "select r.version, r.event_id, r.workspace, r.id, 'cmd.task.execute'", check="storm"),
    _sql("a cursor by plain sequence", "read_log", "where e.seq >= m.lower_seq and e.seq < m.upper_seq", "where false", check="storm",
         faults="stranger,network to Postgres"),
    _sql("leases by a clock that is wrong", "claim", "lease_until = now() +", "lease_until = now() + interval '1 hour' +", check="storm",
         faults="worker: SIGKILL,worker: frozen"),
    Mutant("published before the broker has it", "storm", "grns/outbound.py", "            self._postpone(parcel, _RETRY_SECONDS)\n\n    def _refused",
           "            self._end(parcel)\n\n    def _refused", "network to NATS,NATS: killed,NATS: frozen"),
    Mutant("nothing is replayed", "storm", "grns/broker_watch.py", "        if reason is not None:", "        if reason is None:", "NATS: "),
    Mutant("an unknown outcome told as nothing done", "points", "grns/store/fault.py", "raise OutcomeUnknown(f\"no answer",
           "raise Unavailable(f\"no answer", "submit_tasks.answered=drop"),
    Mutant("answers of a batch that slip by one", "storm", "grns/store/finish.py",
           "[finish.outcome.result for finish in finishes],", "[finish.outcome.result for finish in [*finishes[1:], finishes[0]]],", "worker"),
    Mutant("own writes committed without the finish", "storm", "grns/context.py", "                finished = await self._finish_in(connection, transaction)\n",
           "                await connection.execute('commit')\n                finished = await self._finish_in(connection, transaction)\n"),
)  # fmt: skip


def sow(mutant: Mutant, directory: Path) -> None:
    """Copy everything, and put the bug in."""
    for name in _TREES:
        source = _ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, directory / name)
    place = directory / mutant.place
    text = place.read_text()
    if mutant.right not in text:
        raise SystemExit(f"{mutant.name}: {mutant.place} has changed, and the mutant with it")
    place.write_text(text.replace(mutant.right, mutant.wrong))


def check(mutant: Mutant, directory: Path) -> str:
    """Run the check on the copy; returns what it says of the bug, nothing where it does not find it."""
    commands = {
        "walks": [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider",
                  "tests/model/test_model_walks.py"],
        "storm": [sys.executable, "-m", "tests.chaos", "--seconds", "40", "--rate", "40", "--faults", "2", "--brief", "--only", mutant.faults],
        "points": [sys.executable, "-m", "tests.chaos.failpoints", "--only", mutant.faults],
    }  # fmt: skip
    done = subprocess.run(
        commands[mutant.check],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory), "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode == 0:
        return ""
    words = ("E   ", "violated", "not drained", *(f"{name}: " for name in VIOLATIONS))
    said = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith(words)]
    return said[0][:100] if said else f"it ended with {done.returncode}"


def main() -> int:
    """Try mutants, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--count", type=int, help="so many, drawn; all without it")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", default="", help="those whose names, or checks, have this in them")
    options = parser.parse_args()
    chosen = [one for one in MUTANTS if options.only in one.name or options.only == one.check]
    chosen = random.Random(options.seed).sample(chosen, min(options.count or len(chosen), len(chosen)))
    console = Console(width=None if sys.stdout.isatty() else 150)
    table = Table("bug", "check", "what it found")
    survivors = 0
    with progress_on(console) as progress:
        bar = progress.add_task("", total=len(chosen))
        for mutant in sorted(chosen, key=MUTANTS.index):
            progress.update(bar, description=mutant.name)
            with tempfile.TemporaryDirectory(prefix="grns-mutant-") as directory:
                Path(directory).chmod(0o755)  # Postgres is not run as root
                sow(mutant, Path(directory))
                found = check(mutant, Path(directory))
            survivors += not found
            table.add_row(mutant.name, mutant.check, found or "[red]NOTHING[/]")
            progress.advance(bar)
    console.print(table)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
