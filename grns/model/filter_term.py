"""One term of a filter: what it may be about, and which values fit it."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from grns.model import duration
from grns.model.task import Status

_OLDEST_SECONDS = 3660 * 86_400
_NUMBER = re.compile(r"(>=|<=|>|<|)([0-9]{1,9})")
_AGE = re.compile(r"(>=|<=|>|<)(.+)")
_SIGNS = {"": operator.eq, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_MEANING = re.compile(r"[\\*\"]")
_APART = re.compile(r"[ \t\r\n,]")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a term may be about: for help, completion and forms. `values` are all that there are, if few."""

    name: str
    says: str
    form: Literal["choice", "text", "number", "age"]
    example: str
    values: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """What may stand behind its colon, as the end of a sentence."""
        if self.form == "choice":
            return f"{self.name} is one of {', '.join(self.values)}"
        if self.form == "text":
            return f"in {self.name} a * may only stand at the end of a value, as in {self.example}"
        if self.form == "age":
            return "age is a bound of whole seconds, ten years at most, as in age:>1h or age:<2d"
        most = f" from {self.values[0]} to {self.values[-1]}" if self.values else ""
        return f"{self.name} is a whole number{most}, or a bound, as in {self.example}"


TERMS = (
    Kind("state", "where the task is", "choice", "state:dead,failed", tuple(Status)),
    Kind("type", "its task type", "text", "type:fetch_*"),
    Kind("agent", "the agent type that it is for", "text", "agent:worker"),
    Kind("worker", "the worker that runs it now", "text", "worker:worker-7f3a*"),
    Kind("priority", "how urgent it is, 0 critical to 3 background", "number", "priority:<2", tuple("0123")),
    Kind("attempt", "how often it was claimed", "number", "attempt:>2"),
    Kind("age", "how long ago it was created", "age", "age:>1h,<2d"),
    Kind("error", "class or message of its latest error", "text", 'error:Timeout*,"*refused*"'),
    Kind("fingerprint", "the issue that its latest error belongs to", "text", "fingerprint:43cd999a5d664916"),
    Kind("trace", "its trace id", "text", "trace:tr-8f678c2a"),
    Kind("key", "its idempotency key", "text", "key:order-17"),
    Kind("id", "its id", "text", "id:gr-06gvth*"),
    Kind("discarded", "whether somebody has set it aside: no, unless said", "choice", "discarded:yes",
         ("yes", "no")),
    Kind("payload", "a value in its payload, by the path to it", "text", "payload.order.id:17"),
)  # fmt: skip
KINDS = {kind.name: kind for kind in TERMS}


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text; between two pieces of it there may be anything."""

    pieces: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Say whether only one text fits."""
        return len(self.pieces) == 1

    def fits(self, text: str) -> bool:
        """Say whether a text is like this."""
        return re.fullmatch(".*".join(map(re.escape, self.pieces)), text, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Number:
    """A number or, with a sign, all that is beyond it. An age is in seconds."""

    sign: str
    number: int

    @property
    def is_bound(self) -> bool:
        """Say whether it has a sign."""
        return self.sign != ""

    def fits(self, number: int) -> bool:
        """Say whether a number is this one, or beyond it."""
        return bool(_SIGNS[self.sign](number, self.number))


Value = Pattern | Number


def read(kind: Kind, pieces: Sequence[str]) -> Value | None:
    """Return the value that a text with stars between its pieces is; None where it is none of this kind."""
    text = "*".join(pieces)
    if kind.form == "choice":
        return Pattern((text,)) if text in kind.values else None
    if kind.form == "number":
        return _number(kind, text)
    if kind.form == "age":
        return _age(text)
    if len(pieces) == 1:
        return Pattern((text,))
    begin, *middle, end = pieces
    inner = [piece for piece in middle if piece]
    if kind.name != "error" and (inner or end):
        return None
    return Pattern((begin, *inner, end))


def _number(kind: Kind, text: str) -> Number | None:
    found = _NUMBER.fullmatch(text)
    if found is None or (kind.values and found[2] not in kind.values):
        return None
    return Number(found[1], int(found[2]))


def _age(text: str) -> Number | None:
    found = _AGE.fullmatch(text)
    seconds = duration.parse(found[2]) if found else None
    if found is None or seconds is None or seconds > _OLDEST_SECONDS or not seconds.is_integer():
        return None
    return Number(found[1], int(seconds))


@dataclass(frozen=True, slots=True)
class Term:
    """One term. Its name has the path in it, where it is about a payload: `payload.order.id`.

    Of its values one has to fit, of bounds all; where it is negated none may.
    """

    name: str
    values: tuple[Value, ...]
    is_negated: bool = False

    @property
    def kind(self) -> Kind:
        """What it is about."""
        return KINDS[self.name.partition(".")[0]]

    @property
    def path(self) -> list[str]:
        """The way to the value in a payload."""
        return self.name.split(".")[1:]

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """What texts have to be like."""
        return tuple(value for value in self.values if isinstance(value, Pattern))

    @property
    def numbers(self) -> tuple[Number, ...]:
        """Numbers of which one may fit alone."""
        return tuple(value for value in self.values if isinstance(value, Number) and not value.is_bound)

    @property
    def bounds(self) -> tuple[Number, ...]:
        """Bounds that have to fit together."""
        return tuple(value for value in self.values if isinstance(value, Number) and value.is_bound)

    def __str__(self) -> str:
        values = ",".join(_written(self.kind, value) for value in self.values)
        return f"{'-' if self.is_negated else ''}{self.name}:{values}"


def _written(kind: Kind, value: Value) -> str:
    if isinstance(value, Number):
        is_age = kind.form == "age"
        return f"{value.sign}{duration.written(value.number) if is_age else value.number}"
    text = "*".join(_MEANING.sub(r"\\\g<0>", piece) for piece in value.pieces)
    return f'"{text}"' if not text or _APART.search(text) else text
