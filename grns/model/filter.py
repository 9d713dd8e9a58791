"""The filter language: selects tasks with one line, the same at every interface.

    status:dead type:fetch_* -pool:batch error:"*connection reset*" attempt:>2 payload.url:"https://a.example/"

A task must match all terms. It matches a term with several values (`status:dead,failed`, or the term twice)
if it matches one of them; bounds (`attempt:>2,<9`) must all hold. A minus before a term excludes its
values. `*` stands for any text, at the end of a value and in errors anywhere. Quote values with blanks,
commas or quotes; a backslash escapes the next character. A word without a term is the beginning of an id or
a trace id.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from grns.errors import InvalidInputError
from grns.model import duration
from grns.model.filter_kinds import KINDS, TERMS, Kind
from grns.model.task import REDRIVABLE, TaskStatus
from grns.model.words import words

LONGEST = 4000
MOST_VALUES = 50

_BLANKS = " \t\r\n"
_HEAD = re.compile(r"-?([^\s:\",*\\]+):")
_PATH = re.compile(r"payload(\.[A-Za-z0-9_-]{1,64}){1,8}")
_BANNED = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SHOWN = 20
_OLDEST_SECONDS = 3660 * 86_400
_NUMBER = re.compile(r"(>=|<=|>|<|)([0-9]{1,9})")
_AGE = re.compile(r"(>=|<=|>|<)(.+)")
_SIGNS = {"": operator.eq, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_MEANING = re.compile(r"[\\*\"]")
_LAST_RUN = re.compile(r"(.*?)([^\W_]*+)", re.DOTALL)
_APART = re.compile(r"[ \t\r\n,]")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text pattern: any text may stand between two pieces."""

    pieces: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether only one text matches."""
        return len(self.pieces) == 1

    @property
    def words(self) -> tuple[list[str], str]:
        """The words that a text has, and the beginning of one more: `report fe*` is `(["report"], "fe")`."""
        before, run = _LAST_RUN.fullmatch(self.pieces[0]).groups()  # type: ignore[union-attr]  # it always fits
        if self.is_exact or not (begun := words(run)):
            return words(before + run), ""
        return [*words(before), *begun[:-1]], begun[-1]

    def fits(self, text: str) -> bool:
        """Return whether a text matches."""
        return re.fullmatch(".*".join(map(re.escape, self.pieces)), text, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Number:
    """A number or, with a sign, a bound. An age is in seconds."""

    sign: str
    number: int

    @property
    def is_bound(self) -> bool:
        """Whether it is a bound."""
        return self.sign != ""

    def fits(self, number: int) -> bool:
        """Return whether a number matches."""
        return bool(_SIGNS[self.sign](number, self.number))


Value = Pattern | Number


def read(kind: Kind, pieces: Sequence[str]) -> Value | None:
    """Return the value of a text, split at its stars; None if the kind does not allow it."""
    text = "*".join(pieces)
    if kind.form == "choice":
        return Pattern((text,)) if text in kind.values else None
    if kind.form == "number":
        return _number(kind, text)
    if kind.form == "age":
        return _age(text)
    if kind.name == "text" and list(pieces) != ["", ""] and not words(text):
        return None
    if len(pieces) == 1:
        return Pattern((text,))
    begin, *middle, end = pieces
    inner = [piece for piece in middle if piece]
    if kind.is_whole or (kind.name != "error" and (inner or end)):
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
    """One term. The name of a term about the payload contains the path: `payload.order.id`.

    A task matches one of the values and all bounds; if the term is negated, none of them.
    """

    name: str
    values: tuple[Value, ...]
    is_negated: bool = False

    @property
    def kind(self) -> Kind:
        """The kind of the term."""
        return KINDS[self.name.partition(".")[0]]

    @property
    def path(self) -> list[str]:
        """The path of the value in the payload."""
        return self.name.split(".")[1:]

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The text patterns."""
        return tuple(value for value in self.values if isinstance(value, Pattern))

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The numbers that are not bounds."""
        return tuple(value for value in self.values if isinstance(value, Number) and not value.is_bound)

    @property
    def bounds(self) -> tuple[Number, ...]:
        """The bounds."""
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


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects the tasks that match all terms. Its text has a fixed order and parses to the same filter."""

    terms: tuple[Term, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of its terms."""
        return frozenset(term.kind.name for term in self.terms)

    @property
    def states(self) -> frozenset[TaskStatus]:
        """The statuses that matching tasks can have."""
        found = frozenset(TaskStatus(value) for value in self._allowed("status"))
        if self.patterns("worker") is not None:
            found &= {TaskStatus.RUNNING}
        if "no" not in self._allowed("discarded"):
            found &= REDRIVABLE
        return found

    @property
    def priorities(self) -> frozenset[int]:
        """The priorities that matching tasks can have."""
        return frozenset(int(value) for value in self._allowed("priority"))

    @property
    def marks(self) -> frozenset[str]:
        """Whether matching tasks are discarded, `yes` or `no`. Defaults to no."""
        is_given = any(term.name == "discarded" for term in self.terms)
        return frozenset(self._allowed("discarded")) if is_given else frozenset({"no"})

    def patterns(self, name: str) -> tuple[Pattern, ...] | None:
        """Return the patterns of a text; None if the filter does not restrict it."""
        for term in self.terms:
            if term.name == name and not term.is_negated:
                return term.patterns
        return None

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return the texts that match; None if others can match too."""
        patterns = self.patterns(name)
        if patterns is None or not all(pattern.is_exact for pattern in patterns):
            return None
        return tuple(pattern.pieces[0] for pattern in patterns)

    def _allowed(self, name: str) -> list[str]:
        terms = [term for term in self.terms if term.name == name]
        return [value for value in KINDS[name].values if all(_fits(term, value) for term in terms)]

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))


def _fits(term: Term, value: str) -> bool:
    """Return whether a value matches a term."""
    found = [pattern.fits(value) for pattern in term.patterns]
    found += [number.fits(int(value)) for number in term.numbers]
    bounds = [bound.fits(int(value)) for bound in term.bounds]
    if bounds:
        found.append(any(bounds) if term.is_negated else all(bounds))
    return any(found) != term.is_negated


def parse(text: str) -> Filter:
    """Return the filter of a text.

    Raises:
        InvalidInputError: `bad_filter` names the position of the error and what is allowed there.
    """
    if len(text) > LONGEST:
        raise InvalidInputError("bad_filter", f"the filter has {len(text)} characters, {LONGEST} are allowed")
    values_of: dict[tuple[str, bool], set[Value]] = {}
    for term in _Reader(text).terms():
        values_of.setdefault((term.name, term.is_negated), set()).update(term.values)
    if sum(map(len, values_of.values())) > MOST_VALUES:
        raise InvalidInputError("bad_filter", f"the filter has more than {MOST_VALUES} values")
    terms = [Term(name, tuple(sorted(values, key=_rank)), no) for (name, no), values in values_of.items()]
    return Filter(tuple(sorted(terms, key=_place)))


def _rank(value: Value) -> tuple[str, int, tuple[str, ...]]:
    return (value.sign, value.number, ()) if isinstance(value, Number) else ("", 0, value.pieces)


def _place(term: Term) -> tuple[int, str, bool]:
    return TERMS.index(term.kind), term.name, term.is_negated


def complete(beginning: str) -> list[tuple[str, str]]:
    """Return completions of the beginning of a term with their meaning, for shells and search fields."""
    minus = "-" if beginning.startswith("-") else ""
    name, colon, value_text = beginning.removeprefix("-").partition(":")
    if not colon:
        heads = [(f"{kind.name}{'.' if kind.name == 'payload' else ':'}", kind.says) for kind in TERMS]
        return [(minus + head, says) for head, says in heads if head.startswith(name)]
    last = value_text.rpartition(",")[2]
    values = KINDS[name].values if name in KINDS else ()
    return [(beginning.removesuffix(last) + value, "") for value in values if value.startswith(last)]


class _Reader:
    """Parses a text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def terms(self) -> Iterator[Term]:
        """Yield the terms."""
        while self._next() is not None:
            if self._text[self._place] in _BLANKS:
                self._place += 1
            elif head := _HEAD.match(self._text, self._place):
                yield self._term(head)
            else:
                yield from self._words()

    def _term(self, head: re.Match[str]) -> Term:
        is_negated = head[0].startswith("-")
        kind = self._kind(head[1])
        self._place = head.end()
        values = tuple(self._value(kind, place, pieces) for place, pieces in self._values())
        return Term(head[1], values, is_negated)

    def _kind(self, name: str) -> Kind:
        if _PATH.fullmatch(name):
            return KINDS["payload"]
        if name.partition(".")[0] == "payload":
            raise self._refusal(
                self._place, f"payload has a path behind it, as in {KINDS['payload'].example}"
            )
        if name not in KINDS:
            meant = get_close_matches(name, KINDS, n=1)
            hint = f" (did you mean {meant[0]}?)" if meant else ""
            raise self._refusal(self._place, f"there is no such term{hint}; there are {', '.join(KINDS)}")
        return KINDS[name]

    def _words(self) -> Iterator[Term]:
        is_negated = self._next() == "-"
        self._place += is_negated
        for place, pieces in self._values():
            name = "id" if pieces[0].startswith("gr-") else "trace"
            if not pieces[0]:
                raise self._refusal(
                    place, "a word alone is how an id or a trace id begins, so it has a beginning"
                )
            prefix = pieces if len(pieces) > 1 else [*pieces, ""]
            yield Term(name, (self._value(KINDS[name], place, prefix),), is_negated)

    def _value(self, kind: Kind, place: int, pieces: list[str]) -> Value:
        value = read(kind, pieces)
        if value is None:
            raise self._refusal(place, kind.allowed)
        return value

    def _values(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the position of each value of a term and its pieces, split at stars."""
        yield self._place, self._pieces()
        while self._next() == ",":
            self._place += 1
            yield self._place, self._pieces()

    def _pieces(self) -> list[str]:
        start, opened, pieces = self._place, None, [""]
        while (letter := self._next()) is not None and (opened is not None or letter not in _BLANKS + ","):
            if letter == '"':
                opened = self._place if opened is None else None
            elif letter == "*":
                pieces.append("")
            else:
                self._place += letter == "\\"
                pieces[-1] += self._letter()
            self._place += 1
        if opened is not None:
            raise self._refusal(opened, "this quote has no other one behind it")
        if self._place == start:
            raise self._refusal(start, 'a value is missing; one without any text is ""')
        return pieces

    def _letter(self) -> str:
        letter = self._next()
        if letter is None:
            raise self._refusal(self._place - 1, "a backslash stands in front of a character")
        if _BANNED.match(letter):
            raise self._refusal(self._place, "this character cannot be looked for; a * may stand for it")
        return letter

    def _next(self) -> str | None:
        return self._text[self._place] if self._place < len(self._text) else None

    def _refusal(self, place: int, why: str) -> InvalidInputError:
        rest = ascii(self._text[place : place + _SHOWN])[:100]
        where = f"at character {place + 1}, {rest}" if place < len(self._text) else "at its end"
        return InvalidInputError("bad_filter", f"the filter is wrong {where}: {why}")
