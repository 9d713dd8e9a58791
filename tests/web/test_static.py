"""What the pages are made of: nothing from elsewhere, nothing inline or unescaped, colours to read by."""

from __future__ import annotations

import hashlib
import re

import pytest

from grns.web.templating import STATIC, asset_url, environment

TEMPLATES = STATIC.parent / "templates"
VENDOR = STATIC / "vendor"
OURS = [path for path in (*STATIC.glob("*.*"), *TEMPLATES.glob("*.*")) if path.is_file()]
CSS = (STATIC / "app.css").read_text()
_COLOURS = re.compile(r"(--[a-z-]+|color): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")
_HOST = re.compile(r"(https?:)?//[a-z0-9.-]+\.[a-z]{2,}", re.IGNORECASE)


def test_what_is_not_ours_is_what_its_list_says() -> None:
    listed = re.findall(
        r"^\| (\S+) \| ([0-9.]+) \| \S+ \| `([^`]+)` \| `([0-9a-f]{64})` \|$",
        (VENDOR / "README.md").read_text(),
        re.M,
    )
    files = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.is_file()}
    licences = {f"{name.partition('/')[0]}/LICENSE" for _, _, name, _ in listed}
    assert files == {"README.md", *licences, *(name for _, _, name, _ in listed)}
    for _, version, name, digest in listed:
        content = (VENDOR / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, name
        assert name.endswith(".css") or version in content.decode(), name


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_nothing_comes_from_elsewhere(path: object) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")  # type: ignore[attr-defined]
    assert not _HOST.findall(text)
    assert "@import" not in text
    assert "url(" not in text


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.html")), ids=lambda path: path.name)
def test_templates_have_nothing_inline_and_escape_everything(path: object) -> None:
    text = path.read_text()  # type: ignore[attr-defined]
    assert not re.search(r"\|\s*(safe|tojson|xmlattr|urlize)\b|autoescape|Markup", text)
    assert not re.search(r"""\s(style|on[a-z]+)\s*=\s*["']""", text)
    assert not re.search(r"<style|<script(?![^>]* src=)|javascript:|hx-on|hx-vals|\bjs:", text)
    # An attribute without quotes ends at a blank, of which data may have some.
    assert not re.search(r"=\{\{", text)


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_scripts_make_no_markup_of_texts(path: object) -> None:
    text = path.read_text()  # type: ignore[attr-defined]
    assert text.startswith('"use strict";')
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|setTimeout\(\"", text
    )


def test_templates_escape_by_themselves() -> None:
    found = environment()
    shown = found.from_string("{{ x }}|{{ nothing }}").render(x="<a \"'&>\u202e", nothing=None)
    assert shown == "&lt;a &#34;&#39;&amp;&gt;⟨U+202E⟩|"
    assert found.from_string('<p title="{{ x|exact }}">').render(x='"\u202e') == '<p title="&#34;\u202e">'
    with pytest.raises(Exception, match="missing"):
        found.from_string("{{ missing }}").render()


def test_every_template_is_one() -> None:
    for name in environment().list_templates():
        environment().get_template(name)


# ---------------------------------------------------------------- colours

# What is written on what, at least with 4.5 : 1; lines that one has to see with 3 : 1.
TEXTS = [
    *((ink, ground) for ink in ("ink", "quiet", "link") for ground in ("ground", "raised", "here")),
    ("on-primary", "primary"), ("bad", "bad-ground"), ("good", "good-ground"), ("warn", "warn-ground"),
    ("busy", "busy-ground"), ("bad", "ground"),
]  # fmt: skip
LINES = [
    ("edge", "ground"),
    ("edge", "raised"),
    ("primary", "ground"),
    ("busy", "raised"),
    ("warn", "raised"),
]


def _colours(place: int) -> dict[str, str]:
    return {found[0].removeprefix("--"): found[place] for found in _COLOURS.findall(CSS)}


def _light(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, as WCAG counts it."""
    lights = sorted((_light(one), _light(other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


@pytest.mark.parametrize("place", [1, 2], ids=["light", "dark"])
def test_everything_can_be_read(place: int) -> None:
    colours = _colours(place)
    for pairs, least in ((TEXTS, 4.5), (LINES, 3.0)):
        for one, other in pairs:
            assert contrast(colours[one], colours[other]) >= least, (one, other)
    ground = colours["ground"]
    for line in re.findall(r"\.line-\d \{ color: light-dark\((#\w+), (#\w+)\)", CSS):
        assert contrast(line[place - 1], ground) >= 3.0, line


def test_contrast_is_counted_as_it_should_be() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_a_file_that_changes_is_at_another_place() -> None:
    digest = hashlib.sha256((STATIC / "app.css").read_bytes()).hexdigest()
    assert asset_url("app.css") == f"/static/app.css?v={digest[:16]}"
