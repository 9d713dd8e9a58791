"""What people say of a task: its title, description, tags, metadata, and who created it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypedDict

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from grns.errors import InvalidInputError
from grns.model.json import Limits, dumps

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
Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/@-]{1,64}$")]
Tags = Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS), AfterValidator(_each_once)]
Metadata = Annotated[dict[str, Any], AfterValidator(_storable)]
Creator = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_one_line)]


class LabelOptions(TypedDict, total=False):
    """What `Client.submit` takes of them."""

    title: str | None
    description: str | None
    tags: Iterable[str]
    metadata: dict[str, Any] | None
    created_by: str | None


class Labels(BaseModel):
    """What people say of a task. It changes nothing of how the task runs.

    `title` is one line, `description` has up to 10,000 characters, `tags` are up to 32 of
    `A-Z a-z 0-9 _ . : / @ -`, `metadata` is a JSON object of up to 16 KiB, `created_by` is who asked for it.
    """

    model_config = ConfigDict(frozen=True)

    title: Title | None = None
    description: Description | None = None
    tags: Tags = ()
    metadata: Metadata | None = None
    created_by: Creator | None = None

    def label_values(self) -> dict[str, Any]:
        """Return them as the fields of a task."""
        return {name: getattr(self, name) for name in Labels.model_fields} | {"tags": list(self.tags)}

    def label_text(self) -> str | None:
        """Return what `grns.submit_tasks` takes; None if nothing is said, which costs no row."""
        if not (self.title or self.description or self.tags or self.metadata or self.created_by):
            return None
        return dumps(self.model_dump(include=set(Labels.model_fields), exclude_defaults=True, mode="json"))
