"""Secrets within texts: as programs escape and encode them, and as they cut them."""

from __future__ import annotations

import base64
import json
import time
import traceback
from collections.abc import Callable
from urllib.parse import quote, urlencode

import pytest
from pydantic import BaseModel, ValidationError

from grns.model.failure import error_message, printable, traceback_text
from grns.model.secret import MASK, PartScrubber, Scrubber

PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ+/FAASC\nBKcwggSjAgEAAo+IBAQC7VJ\n-----END\n"
ODD = "clé \"of\" the 'canary'\n\ttab\r\x07 \\ & end"
TOKEN = "eyJhbGciOiJIUzI1NiJ9." + "".join(f"{number:04}" for number in range(400))
PARTS = {PEM: "MIIEvQIBAD", ODD: "canary", TOKEN: "eyJhbGci"}


def repeated(text: str) -> str:
    return repr(ValueError(f"bad {text!r}"))


def in_group(text: str) -> str:
    return "".join(traceback.format_exception(ExceptionGroup("some", [ValueError(f"bad\n{text}")])))


WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "repr": repr,
    "repr beside both quotes": lambda text: repr(f"'\" {text}"),
    "repr of bytes": lambda text: repr(text.encode()),
    "ascii": ascii,
    "repr in repr": repeated,
    "repr in repr in repr": lambda text: repr(ValueError(repeated(text))),
    "repr in JSON": lambda text: json.dumps({"error": repr(text)}),
    "JSON": json.dumps,
    "JSON in Unicode": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON in JSON": lambda text: json.dumps({"body": json.dumps({"key": text})}),
    "printable": printable,
    "URL": quote,
    "form": lambda text: urlencode({"key": text}),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "basic": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    "base64 of a URL": lambda text: base64.urlsafe_b64encode(f"ab{text}c".encode()).decode(),
    "stripped": str.strip,
}


@pytest.mark.parametrize("secret", [PEM, ODD, TOKEN], ids=["pem", "odd", "token"])
@pytest.mark.parametrize("written", WRITTEN)
def test_a_secret_is_found_as_programs_write_it(written: str, secret: str) -> None:
    text = WRITTEN[written](secret)
    shown = Scrubber([secret]).text(f"before {text} behind")
    assert (shown.startswith("before "), shown.endswith(" behind")) == (True, True)
    assert MASK in shown
    assert PARTS[secret] not in shown
    assert len(shown) < 60, "no part of it is left but what the text has around it"


def test_the_lines_of_a_secret_are_found_where_they_are_indented() -> None:
    shown = Scrubber([PEM]).text(in_group(PEM))
    assert "ValueError: bad" in shown
    assert not any(line in shown for line in PEM.splitlines() if len(line) >= 16)


class Order(BaseModel):
    number: int


def test_what_a_library_has_cut_is_found() -> None:
    with pytest.raises(ValidationError) as refused:
        Order.model_validate({"number": TOKEN})
    text = str(refused.value)
    assert TOKEN[:20] in text
    assert TOKEN[-20:] in text
    shown = Scrubber([TOKEN]).text(text)
    assert f"input_value='{MASK}...{MASK}'" in shown
    for dots in ("...", "…", "\\u2026"):
        assert Scrubber([TOKEN]).text(f"bad {TOKEN[:180]}{dots}{TOKEN[-50:]}!") == f"bad {MASK}{dots}{MASK}!"


def test_a_text_that_only_begins_alike_is_left_as_it_is() -> None:
    scrubber = Scrubber(["https://hooks.example.com/services/T000/B000/secret"])
    text = "GET https://hooks.example.com/services/help: 404, see ...services/T000/B000/secre"
    assert scrubber.text(text) == text
    assert scrubber.text("cannot reach https://hooks.example.com") == "cannot reach https://hooks.example.com"
    assert Scrubber(["      x", "é     "]).text('      y {"\\u00e9": 1}') == '      y {"\\u00e9": 1}'


@pytest.mark.parametrize("text", ["A" * 100_000, "..." * 30_000, "...AAAAAAAAAAAAAAAA" * 5000])
def test_no_text_takes_long(text: str) -> None:
    scrubber = Scrubber(["A" * 16 + "B" + "A" * 4000, "x" * 16 + "B" + "A" * 4000])
    began = time.process_time()
    scrubber.text(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("place", [0, 30, 31, 46, 47, 55, 60])
def test_a_part_of_a_text_has_nothing_of_a_secret_that_it_cuts(place: int) -> None:
    scrubber, text = Scrubber(["hunter22-hunter22"]), "x" * 30 + "hunter22-hunter22" + "y" * 30
    assert "r22" not in (before := scrubber.part(text, 0, place))
    assert "r22" not in (after := scrubber.part(text, place, len(text)))
    assert (before.count("x") + after.count("x"), before.count("y") + after.count("y")) == (30, 30)


def test_secrets_that_overlap_are_removed_whole() -> None:
    assert Scrubber(["abcdefgh", "efghijkl"]).text("-abcdefghijkl-") == f"-{MASK}-"
    assert Scrubber(["abcdefgh"]).text("abcdefghabcdefgh") == MASK * 2


@pytest.mark.parametrize("before", [0, 100, 3990, 7995, 8000])
def test_the_message_and_the_traceback_of_an_error_are_cut_last(before: int) -> None:
    scrubber = Scrubber([TOKEN])
    try:
        raise ValueError("." * before + TOKEN + "." * 20_000)
    except ValueError as error:
        told = error_message(error, scrubber) + traceback_text(error, scrubber)
    assert "eyJ" not in told
    assert "0001" not in told
    try:
        raise ValueError("." * 20_000 + TOKEN + "." * before)
    except ValueError as error:
        told = traceback_text(error, scrubber)
    assert "0399" not in told


@pytest.mark.parametrize("secret", [PEM, ODD, TOKEN], ids=["pem", "odd", "token"])
@pytest.mark.parametrize("written", ["as it is", "repr", "ascii", "repr in repr", "JSON", "URL"])
def test_what_is_left_of_a_secret_at_an_end_of_a_text_is_removed(written: str, secret: str) -> None:
    """Its sender has cut the text, somewhere."""
    text, scrubber = WRITTEN[written](secret), PartScrubber([secret])
    for size in (*range(1, 40), *range(40, len(text) + 1, 7)):
        for whole, beside in ((f"before {text[:size]}", "before "), (f"{text[-size:]} behind", " behind")):
            shown = scrubber.text(whole)
            assert beside in shown
            left = shown.replace(MASK, "").replace(beside, "")
            assert len(left) < 6 + len("ValueError(\"bad \\'"), f"{size}: {shown}"
    assert scrubber.text("nothing of it") == "nothing of it"


@pytest.mark.parametrize("secret", [PEM, ODD, TOKEN], ids=["pem", "odd", "token"])
def test_of_a_text_that_is_but_a_part_of_a_secret_nothing_is_left(secret: str) -> None:
    """Also if it begins with one of its lines, or as it is without the spaces around it."""
    scrubber = PartScrubber([secret])
    for size in range(6, len(secret) + 1):
        assert scrubber.text(secret[:size]) == MASK
        assert scrubber.text(secret[-size:]) == MASK
    lines = "username=administrator\npassword=s3cr3t\nport=5432"
    assert PartScrubber([lines]).text(f"err {lines[:40]}") == f"err {MASK}"
    two = PartScrubber(["my-secret-abcdef", "cdefLONGSECRETVALUE"])
    assert two.text("abcdefLONGSECRE") == MASK


def test_looking_for_a_thousand_secrets_takes_no_half_second() -> None:
    scrubber = PartScrubber([f"{number:06}{TOKEN[:200]}" for number in range(1000)])
    scrubber.text("their forms are made for this text")
    began = time.process_time()
    scrubber.text("no secret of these. " * 100)
    assert time.process_time() - began < 0.5
