"""The leaf of programs that are not ours: facts go to the logger `grns` of Python's own logging."""

from __future__ import annotations

import logging

from grns.telemetry.fact import Fact
from grns.telemetry.log import LEVELS, Wording, redact


class LoggerLeaf:
    """Writes each fact as one record, where the program wants to hear of its level; secrets are removed."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("grns")
        self._wording = Wording()

    def read(self, fact: Fact) -> None:
        """Write one record; a traceback follows on lines of its own."""
        severity = LEVELS[fact.level]
        if not self._logger.isEnabledFor(severity) or (values := self._wording.values(fact)) is None:
            return
        told = dict(redact(None, fact.event, values))
        trace = told.pop("exception", "")
        words = " ".join([fact.event, *(f"{name}={value!r}" for name, value in told.items())])
        self._logger.log(severity, "%s", f"{words}\n{trace}" if trace else words)
