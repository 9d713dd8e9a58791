"""Forms: what a model may have, and which answers fit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, HttpUrl
from typing_extensions import TypedDict

from grns.errors import InvalidInputError
from grns.model.form import answer_of, form_of, read_answer


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Order(BaseModel):
    model_config = ConfigDict(strict=True)

    amount: Annotated[float, Field(ge=0, le=10, description="in euro")]
    count: int = 1
    color: Color = Color.RED
    several: list[Literal["a", "b"]] = []
    note: str | None = None
    when: date | None = None
    page: HttpUrl | None = None
    json_: Annotated[str, Field(max_length=3)] = "x"
    is_urgent: bool


GOOD = {"amount": 3, "is_urgent": True}


def test_a_form_of_a_model_is_flat() -> None:
    form = form_of(Order)
    assert form["required"] == ["amount", "is_urgent"]
    assert form["properties"]["amount"] == {
        "type": "number", "minimum": 0, "maximum": 10, "title": "Amount", "description": "in euro",
    }  # fmt: skip
    assert form["properties"]["color"]["enum"] == ["red", "blue"]
    assert form["properties"]["note"]["nullable"] is True
    assert form_of(form) == form, "a form is one, too"


def test_an_answer_has_the_defaults_and_is_what_the_model_takes() -> None:
    answer = answer_of(form_of(Order), {**GOOD, "when": "2026-12-24", "several": ["b"], "note": None})
    assert answer["color"] == "red"
    assert answer["count"] == 1
    order = Order.model_validate_json(json.dumps(answer))
    assert (order.when, order.several, order.note) == (date(2026, 12, 24), ["b"], None)


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"amount": 3}, {"amount": 11}, {"amount": "3"}, {"amount": True}, {"count": 1.5}, {"count": None},
        {"color": "green"}, {"color": None}, {"several": ["c"]}, {"several": "a"}, {"when": "tomorrow"},
        {"page": "javascript:alert(1)"}, {"json_": "long"}, {"is_urgent": "yes"}, {"other": 1},
        {"is_urgent": None},
    ],
)  # fmt: skip
def test_an_answer_that_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    said = {**GOOD, **wrong} if len(wrong) == 1 and wrong != {"amount": 3} else wrong
    with pytest.raises(InvalidInputError) as caught:
        answer_of(form_of(Order), said)
    assert caught.value.code == "bad_answer"


@dataclass
class Plain:
    name: str


class Typed(TypedDict):
    name: str


@pytest.mark.parametrize("model", [Plain, Typed])
def test_dataclasses_and_typed_dicts_are_forms(model: Any) -> None:
    assert answer_of(form_of(model), {"name": "ann"}) == {"name": "ann"}


def of(annotation: Any) -> type:
    return type("Made", (BaseModel,), {"__annotations__": {"x": annotation}})


@pytest.mark.parametrize(
    "annotation",
    [
        dict[str, int], list[int], list[str], Order, Literal[1, 2], Level,
        Annotated[int, Field(multiple_of=5)], bytes, int | str, tuple[int, int],
    ],
)  # fmt: skip
def test_what_cannot_be_asked_everywhere_is_refused(annotation: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        form_of(of(annotation))
    assert caught.value.code == "bad_handler"


@pytest.mark.parametrize("model", [int, lambda: 1, object, {"type": "object"}, {}])
def test_what_is_no_form_is_refused(model: Any) -> None:
    with pytest.raises(InvalidInputError):
        form_of(model)


def test_texts_of_a_page_become_an_answer() -> None:
    form = form_of(Order)
    texts = {
        "amount": [" 3.5 "], "count": [" 2"], "is_urgent": ["on"], "several": ["a", "b"], "note": [""],
        "when": ["2026-01-01"],
    }  # fmt: skip
    assert read_answer(form, texts) == {
        "amount": 3.5, "count": 2, "is_urgent": True, "several": ["a", "b"], "when": "2026-01-01",
    }  # fmt: skip
    assert read_answer(form, {"amount": ["many"], "is_urgent": ["no"]}) == {
        "amount": "many", "is_urgent": False, "several": [],
    }  # fmt: skip
