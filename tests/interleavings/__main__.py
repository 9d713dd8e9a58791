"""`make model`: every interleaving of two tasks, two workers, two attempts and two faults, of a relay, of
a follower, of an admitter, and of a task with a step and a wait.

Attempts succeed or ask for a retry; faults are crashes, lost acks, redeliveries, leases that run out and the
broker's loss. Faults of the relay are refusals, lost answers, late arrivals and crashes; those of the
follower and the admitter are crashes, another leader, rows that are read again and leases that run
out. Release, cancel and redrive are in the walks that `test_model_walks.py` takes on Postgres.
"""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.interleavings.admitter import AdmitterRules, admitter_model, begin_admitter
from tests.interleavings.explore import Exploration, Model, State, explore
from tests.interleavings.follower import FollowerRules, begin_follower, begin_join, follower_model
from tests.interleavings.relay import RelayRules, begin_relay, relay_model
from tests.interleavings.row import Violation
from tests.interleavings.variants import (
    ADMITTER_VARIANTS,
    FOLLOWER_VARIANTS,
    RELAY_VARIANTS,
    VARIANTS,
    WAIT_VARIANTS,
    find,
)
from tests.interleavings.waits import WaitRules, begin_waits, waits_model
from tests.interleavings.world import Rules, begin, model

_WORLDS = "{task.description}: {task.completed:,} worlds, {task.fields[steps]:,} steps"


def main() -> int:
    """Explore, then let each variant be found; returns the exit code."""
    console = Console()
    try:
        without = Rules(has_hints=False)
        start = begin(2, 2, 2, 2, has_hints=False)
        _explore(console, "2 tasks x 2 workers x 2 attempts x 2 faults", start, model(without))
        for numbers in ((2, 1, 2, 1), (1, 2, 3, 3)):
            title = "{} tasks x {} workers x {} attempts x {} faults, with hints".format(*numbers)
            _explore(console, title, begin(*numbers), model(Rules()))
        for tasks in ((0, 0, 1, 0, 1), (0, 1, 0, 0, 1)):
            relay = begin_relay(tasks, faults=2)
            _explore(console, f"a relay, rows of tasks {tasks}, 2 faults", relay, relay_model(RelayRules()))
        for counts in ((3, 1, 1, 1), (4, 1, 0, 0)):
            title = "a follower, {} tasks, {} redrive, {} lock of another session, {} faults".format(*counts)
            _explore(console, title, begin_follower(*counts), follower_model(FollowerRules()))
        title = "a task that joins two, 1 redrive, 1 lock of another session, 1 fault"
        _explore(console, title, begin_join(1, 1, 1), follower_model(FollowerRules()))
        for count, retries, locks in ((2, 2, 2), (3, 0, 1)):
            title = (
                f"an admitter, {count} tasks, {retries} retries, {locks} lock(s) of another session, 1 fault"
            )
            admission = begin_admitter(count, retries=retries, cancels=0, locks=locks, faults=1)
            _explore(console, title, admission, admitter_model(AdmitterRules()))
        for sends, faults, timers in ((3, 3, 1), (2, 3, 0)):
            title = f"a task with a step that waits for {sends} signals, {timers} time limit, {faults} faults"
            _explore(console, title, begin_waits(sends, faults, timers), waits_model(WaitRules()))
    except Violation as error:
        console.print(f"violated: {error}", markup=False)
        return 1
    return _show_variants(console)


def _explore(console: Console, title: str, start: State, rules: Model[State]) -> None:
    began = time.monotonic()
    columns = SpinnerColumn(), TextColumn(_WORLDS), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(f"exploring {title}", total=None, steps=0)

        def tell(seen: Exploration[State]) -> None:
            progress.update(bar, completed=len(seen.parents), steps=seen.steps)

        seen = explore(start, rules, tell)
    console.print(
        f"{title}: {seen.worlds:,} worlds, {seen.steps:,} steps, {seen.ends} ends, at most"
        f" {seen.deepest - 1} steps from the first world; nothing violated, nothing stuck"
        f" ({time.monotonic() - began:.0f} s)"
    )


def _show_variants(console: Console) -> int:
    table = Table("built wrongly", "steps", "what the model finds")
    names = VARIANTS | RELAY_VARIANTS | FOLLOWER_VARIANTS | ADMITTER_VARIANTS | WAIT_VARIANTS
    found = {variant: find(variant) for variant in names}
    for variant, way in found.items():
        table.add_row(names[variant], str(len(way) - 2), "\n".join(way[:-1]) if way else "NOTHING")
    console.print(table)
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
