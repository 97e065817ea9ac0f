"""Text embeddings that are kept: found again, never of other weights, never needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from sparc_dist.backbones.models import Backbone
from sparc_dist.backbones.text_cache import VARIABLE, Float32, TextCache, user_file
from sparc_dist.config import BackboneConfig
from sparc_dist.prompts import PromptBank
from sparc_dist.prompts.compound import all_pairs


class Tower:
    """Embeds a text as its length and first letter, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> Float32:
        self.asked += texts
        return np.array([[len(text), ord(text[0])] for text in texts], dtype=np.float32)


def test_only_new_texts_are_embedded(tmp_path: Path) -> None:
    run, user, tower = str(tmp_path / "run.parquet"), str(tmp_path / "user.parquet"), Tower()
    first = TextCache([run, user], "weights").embed(["cat", "dog", "cat"], tower)
    assert tower.asked == ["cat", "dog"]
    np.testing.assert_array_equal(first, [[3, 99], [3, 100], [3, 99]])
    other_run = str(tmp_path / "other.parquet")
    second = TextCache([other_run, user], "weights").embed(["dog", "sofa"], tower)
    assert tower.asked == ["cat", "dog", "sofa"]
    np.testing.assert_array_equal(second, [[3, 100], [4, 115]])
    TextCache([other_run], "weights").embed(["dog", "sofa"], tower)
    assert len(tower.asked) == 3  # the run has all that it needs, without the user's file


@pytest.mark.parametrize("content", [b"", b"no table", None])
def test_files_that_cannot_be_used_cost_only_time(tmp_path: Path, content: bytes | None) -> None:
    path, tower = tmp_path / "texts.parquet", Tower()
    if content is None:
        TextCache([str(path)], "other weights").embed(["cat"], Tower())
    else:
        path.write_bytes(content)
    TextCache([str(path)], "weights").embed(["cat"], tower)
    assert tower.asked == ["cat"]
    unwritable = tmp_path / "file"
    unwritable.write_text("in the way")
    spare = [f"{unwritable}/texts.parquet"]
    rows = TextCache([], "weights", spare).embed(["cat"], tower)
    assert rows.tolist() == [[3, 99]]
    # A labeler would lack its texts.
    with pytest.raises(OSError, match=r"texts\.parquet was refused"):
        TextCache(spare, "weights").embed(["cat"], tower)


def test_where_the_users_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert user_file("a/b", "0123456789abcdefg") == [
        str(tmp_path / "texts" / "a_b-0123456789abcdef.parquet")
    ]
    monkeypatch.setenv(VARIABLE, "")
    assert user_file("a", "b") == []
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_file("a", "b") == [str(tmp_path / "sparc_dist" / "texts" / "a-b.parquet")]


@pytest.fixture(scope="module")
def tiny() -> Backbone:
    return Backbone(BackboneConfig(name="tiny", model="sparc-tiny"))


def test_an_embedding_does_not_depend_on_what_was_kept(
    tiny: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "")
    classes = ("cat", "traffic light", "dog")
    whole = PromptBank(classes, tuple(all_pairs(classes)), ("boat",), "simple")
    store = str(tmp_path / "texts.parquet")
    tiny.embed(PromptBank(classes[:2], tuple(all_pairs(classes[:2])), (), "simple"), store)
    for again in (tiny.embed(whole, store), tiny.embed(whole, store)):
        for name in ("singleton", "auxiliary", "compound"):
            expected = getattr(tiny.embed(whole), name)
            np.testing.assert_array_equal(getattr(again, name), expected)


def test_templates_are_kept_apart(tiny: Backbone, tmp_path: Path) -> None:
    store = str(tmp_path / "texts.parquet")
    simple, openai = (
        tiny.embed(PromptBank(("cat",), (), (), templates), store)
        for templates in ("simple", "openai")
    )
    assert np.abs(simple.singleton - openai.singleton).max() > 1e-3
    np.testing.assert_array_equal(simple.auxiliary, openai.auxiliary)
