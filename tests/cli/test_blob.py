"""`grns blob`, as somebody types it."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli import Call


def test_a_file_is_kept_and_written_again(cli: Call, tmp_path: Path) -> None:
    (file := tmp_path / "report.pdf").write_bytes(bytes(range(256)))
    kept = cli("blob", "put", str(file), "--type", "application/pdf", "-o", "json").json
    assert (kept["size"], kept["type"]) == (256, "application/pdf")
    assert cli("blob", "put", str(file)).out.strip() == kept["$blob"]
    target = tmp_path / "copy.pdf"
    assert cli("blob", "get", kept["$blob"], str(target)).code == 0
    assert target.read_bytes() == file.read_bytes()
    (listed,) = cli("blob", "list", "-o", "json").json["items"]
    assert (listed["id"], listed["references"]) == (kept["$blob"], 0)
    missing = cli("blob", "get", f"sha256-{'0' * 64}", str(tmp_path / "none"))
    assert (missing.code, "grns blob list" in missing.err) == (3, True)
    assert not (tmp_path / "none").exists()
    assert cli("blob", "get", "report").code == 2
