"""Check of the clocks of this machine, Postgres and the broker. No task depends on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from grns.diagnose.doctor.finding import Finding, error, note, or_ok, warning
from grns.diagnose.doctor.snapshot import ClockSkew, Snapshot
from grns.model.text import lasted

HERE = "this machine"
_APART_SECONDS, _FAR_SECONDS = 2.0, 300.0


def check_clocks(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that the clocks differ by no more than the round trip explains.

    Guards use only Postgres' clock. Log lines, event times and stream times use several; `grns admin verify`
    compares stream times to find events that a failover lost.
    """
    clocks = [ClockSkew(HERE, 0.0, 0.0), *snapshot.clocks]
    if len(clocks) == 1:
        return []
    told = ", ".join(f"{one.name} {_signed(one)}" for one in snapshot.clocks)
    return or_ok("clocks", _apart(clocks), f"compared with this machine: {told}")


def _apart(clocks: Sequence[ClockSkew]) -> Iterator[Finding]:
    for one, other in combinations(clocks, 2):
        apart = abs(one.ahead_seconds - other.ahead_seconds) - one.error_seconds - other.error_seconds
        if apart < _APART_SECONDS:
            continue
        late, early = sorted((one, other), key=lambda clock: clock.ahead_seconds)
        sentence = f"the clock of {early.name} is {lasted(apart)} ahead of that of {late.name}"
        yield _judged(apart, sentence, is_here=HERE in (one.name, other.name))


def _judged(apart: float, sentence: str, *, is_here: bool) -> Finding:
    what_to_do = "synchronize both machines with a time server (chrony, systemd-timesyncd)"
    if is_here:
        return note("clocks", f"{sentence}: only times that you compare yourself are affected", what_to_do)
    if apart >= _FAR_SECONDS:
        return error(
            "clocks",
            f"{sentence}: after a failover, `grns admin verify` would look for losses at the wrong times",
            what_to_do,
        )
    return warning("clocks", f"{sentence}: the times of events and streams do not match", what_to_do)


def _signed(clock: ClockSkew) -> str:
    way = "ahead" if clock.ahead_seconds >= 0 else "behind"
    return f"{lasted(abs(clock.ahead_seconds))} {way} (± {lasted(clock.error_seconds)})"
