"""The filter language: which tasks are wanted, in one line, the same at every door.

    state:dead type:fetch_* -agent:batch error:"*connection reset*" attempt:>2 payload.url:"https://a.example/"

All terms have to hold. Of several values of one (`state:dead,failed`, or the term again) one has to fit;
bounds (`attempt:>2,<9`) have to fit together. With a minus in front none of its values may. `*` stands for
any text, at the end of a value and in errors anywhere. What has blanks, commas or quotes in it is quoted; a
backslash takes its meaning from the character behind it. A word alone is how an id or a trace id begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from grns.errors import InvalidInputError
from grns.model.filter_term import KINDS, TERMS, Kind, Number, Pattern, Term, Value, read
from grns.model.task import REDRIVABLE, Status

LONGEST = 4000
MOST_VALUES = 50

_BLANKS = " \t\r\n"
_HEAD = re.compile(r"-?([^\s:\",*\\]+):")
_PATH = re.compile(r"payload(\.[A-Za-z0-9_-]{1,64}){1,8}")
_BANNED = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks are wanted: those that all its terms fit. Its text has one order, and parses back."""

    terms: tuple[Term, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """What its terms are about."""
        return frozenset(term.kind.name for term in self.terms)

    @property
    def states(self) -> frozenset[Status]:
        """The states that a task can have that it finds."""
        found = frozenset(Status(value) for value in self._allowed("state"))
        if self.patterns("worker") is not None:
            found &= {Status.RUNNING}
        if "no" not in self._allowed("discarded"):
            found &= REDRIVABLE
        return found

    @property
    def priorities(self) -> frozenset[int]:
        """The priorities that a task can have that it finds."""
        return frozenset(int(value) for value in self._allowed("priority"))

    @property
    def marks(self) -> frozenset[str]:
        """Whether a task that it finds is discarded, `yes` or `no`: none is, where nothing is said of it."""
        is_said = any(term.name == "discarded" for term in self.terms)
        return frozenset(self._allowed("discarded")) if is_said else frozenset({"no"})

    def patterns(self, name: str) -> tuple[Pattern, ...] | None:
        """Return what a text has to be like, None where nothing is said of it."""
        for term in self.terms:
            if term.name == name and not term.is_negated:
                return term.patterns
        return None

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return the texts one of which it has to be, None where it may be another one, too."""
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
    """Say whether a term lets one of the few values pass that there are of its kind."""
    found = [pattern.fits(value) for pattern in term.patterns]
    found += [number.fits(int(value)) for number in term.numbers]
    bounds = [bound.fits(int(value)) for bound in term.bounds]
    if bounds:
        found.append(any(bounds) if term.is_negated else all(bounds))
    return any(found) != term.is_negated


def parse(text: str) -> Filter:
    """Return the filter that a text says.

    `InvalidInputError('bad_filter')` says where it says none, and what may stand there.
    """
    if len(text) > LONGEST:
        raise InvalidInputError("bad_filter", f"the filter has {len(text)} characters, {LONGEST} are allowed")
    found: dict[tuple[str, bool], set[Value]] = {}
    for term in _Reader(text).terms():
        found.setdefault((term.name, term.is_negated), set()).update(term.values)
    if sum(map(len, found.values())) > MOST_VALUES:
        raise InvalidInputError("bad_filter", f"the filter has more than {MOST_VALUES} values")
    terms = [Term(name, tuple(sorted(values, key=_rank)), no) for (name, no), values in found.items()]
    return Filter(tuple(sorted(terms, key=_place)))


def _rank(value: Value) -> tuple[str, int, tuple[str, ...]]:
    return (value.sign, value.number, ()) if isinstance(value, Number) else ("", 0, value.pieces)


def _place(term: Term) -> tuple[int, str, bool]:
    return TERMS.index(term.kind), term.name, term.is_negated


def complete(beginning: str) -> list[tuple[str, str]]:
    """Return what a term may go on as, each with what it means: for shells and search fields."""
    minus = "-" if beginning.startswith("-") else ""
    name, colon, said = beginning.removeprefix("-").partition(":")
    if not colon:
        heads = [(f"{kind.name}{'.' if kind.name == 'payload' else ':'}", kind.says) for kind in TERMS]
        return [(minus + head, says) for head, says in heads if head.startswith(name)]
    last = said.rpartition(",")[2]
    values = KINDS[name].values if name in KINDS else ()
    return [(beginning.removesuffix(last) + value, "") for value in values if value.startswith(last)]


class _Reader:
    """Goes through a text from left to right, and finds terms."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def terms(self) -> Iterator[Term]:
        """Yield the terms as they come."""
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
        """Yield where each value of a term begins, and its pieces: stars were between them."""
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
