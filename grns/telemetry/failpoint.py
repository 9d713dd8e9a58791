"""Failpoints: named places at which a test kills, stops or fails a process or cuts its connection.

`GRNS_FAILPOINTS="worker.after_claim=kill@0.01,relay.published=raise#3"`: each time with probability 0.01; the
third time. If the variable is not set, a failpoint costs one dictionary lookup.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from grns.errors import OutcomeUnknownError, SettingsError

ACTIONS = ("kill", "stop", "raise", "sleep", "drop")
_RULE = re.compile(
    r"(?P<name>[a-z_.]+)=(?P<action>[a-z]+)(\((?P<seconds>[0-9.]+)\))?(@(?P<chance>[0-9.]+))?(#(?P<nth>[0-9]+))?"
)


@dataclass(slots=True)
class _Rule:
    action: str
    seconds: float
    chance: float
    nth: int | None
    reached: int = 0

    def is_due(self) -> bool:
        self.reached += 1
        if self.nth is not None:
            return self.reached == self.nth
        return random.random() < self.chance


def _read(text: str) -> dict[str, _Rule]:
    rules = {}
    for part in filter(None, (piece.strip() for piece in re.split("[,;]", text))):
        match = _RULE.fullmatch(part)
        if match is None or match["action"] not in ACTIONS:
            raise SettingsError(f"GRNS_FAILPOINTS: {part!r} is not name=action[(seconds)][@chance][#nth]")
        rules[match["name"]] = _Rule(
            match["action"],
            float(match["seconds"] or 1.0),
            float(match["chance"] or 1.0),
            int(match["nth"]) if match["nth"] else None,
        )
    return rules


_RULES = _read(os.environ.get("GRNS_FAILPOINTS", ""))
ARMED = bool(_RULES)


def reach(name: str, drop: Callable[[], None] | None = None) -> None:
    """Execute the rule for `name`, if there is one. `drop` cuts the connection."""
    rule = _RULES.get(name)
    if rule is None or not rule.is_due():
        return
    os.write(2, f"failpoint {name}: {rule.action}\n".encode())
    if rule.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif rule.action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif rule.action == "sleep":
        time.sleep(rule.seconds)
    elif rule.action == "drop" and drop is not None:
        drop()
    else:
        raise OutcomeUnknownError(f"failpoint {name}")
