"""Class names as people give them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from sparc_dist.cli.label import read_classes
from sparc_dist.errors import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat", ["cat"]),
        ("cat, hot dog,,sofa", ["cat", "hot dog", "sofa"]),
        ("St. Bernard", ["St. Bernard"]),
        ("tcp;ip,cat", ["tcp;ip", "cat"]),
    ],
)
def test_commas(text: str, expected: list[str]) -> None:
    assert read_classes(text) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("# pets\ncat\n  hot dog  # not a pet\n\nC#\n", ["cat", "hot dog", "C#"]),
        ("cat,dog\n", ["cat", "dog"]),
        ("\ufeffcat\r\nblack, white\r\n", ["cat", "black, white"]),
    ],
)
def test_a_file_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, expected: list[str]
) -> None:
    file = tmp_path / "classes"
    file.write_text(content, encoding="utf-8")
    assert read_classes(str(file)) == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(content.removeprefix("\ufeff")))
    assert read_classes("-") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pets.txt", "there is no such file"),
        ("lists/pets", "there is no such file"),
        ("cat;dog", "is one class; separate the names by commas"),
        ("", "there are no classes"),
        ("cat,Cat", "spelt with the same letters"),
    ],
)
def test_what_is_questioned(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_classes(text)
