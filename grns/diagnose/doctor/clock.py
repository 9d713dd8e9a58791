"""Clocks: how far this machine, Postgres and the broker are apart. No task depends on that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from grns.diagnose.doctor.finding import Finding, error, note, or_ok, warning
from grns.diagnose.doctor.snapshot import ClockSkew, Snapshot
from grns.text import lasted

HERE = "this machine"
_APART_SECONDS, _FAR_SECONDS = 2.0, 300.0


def check_clocks(read: Snapshot) -> Sequence[Finding]:
    """Return which clocks are apart, by more than the way there and back can explain.

    Guards go by Postgres' clock alone. What people compare goes by several: lines of logs, the times in
    events and those of streams, by which `grns verify` looks for what a failover has lost.
    """
    clocks = [ClockSkew(HERE, 0.0, 0.0), *read.clocks]
    if len(clocks) == 1:
        return []
    told = ", ".join(f"{one.name} {_signed(one)}" for one in read.clocks)
    return or_ok("clocks", _apart(clocks), f"beside this machine's: {told}")


def _apart(clocks: Sequence[ClockSkew]) -> Iterator[Finding]:
    for one, other in combinations(clocks, 2):
        apart = abs(one.ahead_seconds - other.ahead_seconds) - one.error_seconds - other.error_seconds
        if apart < _APART_SECONDS:
            continue
        late, early = sorted((one, other), key=lambda clock: clock.ahead_seconds)
        sentence = f"the clock of {early.name} is {lasted(apart)} ahead of that of {late.name}"
        yield _judged(apart, sentence, is_here=HERE in (one.name, other.name))


def _judged(apart: float, sentence: str, *, is_here: bool) -> Finding:
    what_to_do = "let both machines follow one time server (chrony, systemd-timesyncd)"
    if is_here:
        return note("clocks", f"{sentence}: nothing depends on it but what people compare", what_to_do)
    if apart >= _FAR_SECONDS:
        return error(
            "clocks", f"{sentence}: what a failover lost is looked for at the wrong times", what_to_do
        )
    return warning("clocks", f"{sentence}: times of events and of streams do not fit", what_to_do)


def _signed(clock: ClockSkew) -> str:
    way = "ahead" if clock.ahead_seconds >= 0 else "behind"
    return f"{lasted(abs(clock.ahead_seconds))} {way} (± {lasted(clock.error_seconds)})"
