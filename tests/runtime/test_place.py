"""Places of files: whole files or none, and errors that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from grns.errors import NotFoundError, SettingsError, UnavailableError
from grns.runtime.place import DirectoryPlace, open_place


def test_a_directory_keeps_whole_files(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    place = open_place(str(tmp_path / "a" / "b"), "GRNS_ARCHIVE")
    assert isinstance(place, DirectoryPlace)
    assert place.names("") == []
    place.write("tasks/2026-11-29/one.json", b"1")
    place.write("events/two", b"2")
    place.write("events/two", b"3")
    (tmp_path / "a" / "b" / "events" / "three.4711.part").write_bytes(b"half")
    assert place.names("") == ["events/two", "tasks/2026-11-29/one.json"]
    assert place.names("tasks") == ["tasks/2026-11-29/one.json"]
    assert place.read("events/two") == b"3"
    place.write("events/letters", b"abcdef")
    assert place.read_part("events/letters", 2, 3) == b"cde"
    assert place.read_part("events/letters", 4, 9) == b"ef"
    for _ in range(2):
        place.delete("events/letters")
    for read in (place.read, lambda name: place.read_part(name, 0, 1)):
        with pytest.raises(NotFoundError):
            read("events/letters")


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path / "away")
    with pytest.raises(UnavailableError, match="cannot write"):
        place.write("tasks/one", b"1")
    with pytest.raises(UnavailableError, match="cannot read"):
        place.names("tasks")
    with pytest.raises(UnavailableError, match="cannot delete"):
        place.delete("tasks/one")
    assert not (tmp_path / "away").exists(), "its disk is not mounted"
    full = DirectoryPlace(tmp_path)
    (tmp_path / "tasks").write_text("")
    with pytest.raises(UnavailableError, match="cannot write"):
        full.write("tasks/one", b"1")


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("ftp://host/x", "neither the absolute path"),
        ("archive", "neither the absolute path"),
        ("/nowhere/archive", "the directory does not exist"),
        ("s3://bucket/x", "pip install 'grns"),
    ],
)
def test_other_places_are_refused(monkeypatch: pytest.MonkeyPatch, url: str, hint: str) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(SettingsError, match=hint):
        open_place(url, "GRNS_ARCHIVE")
