"""What people say of a task: its title, description, tags, metadata, and who created it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypedDict

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from grns.errors import InvalidInputError
from grns.model.json import Limits, dumps
from grns.model.retry import MAX_BACKOFF_SECONDS, Backoff

LONGEST_TITLE = 255
LONGEST_DESCRIPTION = 10_000
MOST_TAGS = 32
METADATA_BYTES = 16 * 1024
_METADATA = Limits(document_bytes=METADATA_BYTES)


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("one line of printable characters")
    return value


def _readable(value: str) -> str:
    if "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("text without NUL and lone surrogates")
    return value


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    try:
        dumps(value, _METADATA)
    except InvalidInputError as error:
        raise ValueError(str(error)) from error
    return value


def _each_once(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(value)))


Title = Annotated[str, Field(max_length=LONGEST_TITLE), AfterValidator(_one_line)]
Description = Annotated[str, Field(max_length=LONGEST_DESCRIPTION), AfterValidator(_readable)]
Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/@-]{1,100}$")]
Tags = Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS), AfterValidator(_each_once)]
Metadata = Annotated[dict[str, Any], AfterValidator(_storable)]
Creator = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_one_line)]


Delay = Annotated[float, Field(ge=0, le=MAX_BACKOFF_SECONDS, allow_inf_nan=False)]


class TaskBackoff(BaseModel):
    """Delays between the attempts of one task, as of `grns.Backoff`: they go before those of its handler."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_seconds: Delay = 5.0
    max_seconds: Delay = 900.0
    curve: Literal["exponential", "polynomial"] = "exponential"


def _named(value: Any) -> Any:
    if not isinstance(value, Backoff):
        return value
    if callable(value.curve):
        raise ValueError("a task keeps the curve exponential or polynomial, and no function")
    return asdict(value)


OwnBackoff = Annotated[TaskBackoff, BeforeValidator(_named)]


class LabelOptions(TypedDict, total=False):
    """What `Client.submit` takes of them."""

    title: str | None
    description: str | None
    tags: Iterable[str]
    metadata: dict[str, Any] | None
    created_by: str | None
    backoff: Backoff | None


class Labels(BaseModel):
    """What people say of a task. It changes nothing of how the task runs, but for its `backoff`.

    `title` is one line, `description` has up to 10,000 characters, `tags` are up to 32 of
    `A-Z a-z 0-9 _ . : / @ -`, `metadata` is a JSON object of up to 16 KiB, `created_by` is who asked for it.
    """

    model_config = ConfigDict(frozen=True)

    title: Title | None = None
    description: Description | None = None
    tags: Tags = ()
    metadata: Metadata | None = None
    created_by: Creator | None = None
    backoff: OwnBackoff | None = None

    def label_values(self) -> dict[str, Any]:
        """Return them as the fields of a task."""
        own = None if self.backoff is None else self.backoff.model_dump()
        values = {name: getattr(self, name) for name in Labels.model_fields}
        return values | {"tags": list(self.tags), "backoff": own}

    def label_text(self) -> str | None:
        """Return what `grns.submit_tasks` takes; None if nothing is said, which costs no row."""
        said = (self.title, self.description, self.tags, self.metadata, self.created_by, self.backoff)
        if not any(said):
            return None
        values = self.model_dump(include=set(Labels.model_fields), exclude_defaults=True, mode="json")
        return dumps(values if self.backoff is None else values | {"backoff": self.backoff.model_dump()})
