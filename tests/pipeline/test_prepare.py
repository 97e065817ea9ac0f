"""The nearest partners of classes: found by the first backbone that loads, kept in the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparc_dist import storage
from sparc_dist.backbones import embed_names
from sparc_dist.backbones.models import Backbone
from sparc_dist.config import BackboneConfig, load_config
from sparc_dist.demo.objects import CLASSES
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.pipeline.prepare import prepare
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import DatasetLayout, RunLayout
from tests.support.command import sparc_dist
from tests.support.running import go

WriteConfig = Callable[..., str]

TINY = {"name": "tiny", "model": "sparc-tiny"}
BROKEN = {"name": "broken", "model": "RN50-quickgelu", "weights": "./none.pt"}
#: So many that not all are paired with each other.
MANY = [*CLASSES, *(f"{colour} {name}" for colour in ("red", "blue") for name in CLASSES[:7])]
FEW_PAIRS = {"background": "none", "prompts": {"pairs_per_class": 3}}


def nearest(names: list[str], k: int) -> set[tuple[int, ...]]:
    """Returns the pairs by brute force, from the bundled model's embeddings of the names."""
    rows = Backbone(BackboneConfig.model_validate(TINY)).encode_texts(names).numpy()
    rows = rows.astype(float) / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
    similarity = np.round(rows @ rows.T, 6)
    pairs = set()
    for i in range(len(names)):
        others = sorted(set(range(len(names))) - {i}, key=lambda j: (-similarity[i, j], j))
        pairs |= {tuple(sorted((i, j))) for j in others[:k]}
    return pairs


def pairs_of(bank: PromptBank) -> set[tuple[int, ...]]:
    return {prompt.class_ids for prompt in bank.compound}


def bank_of(path: str, folder: Path) -> PromptBank:
    """Prepares the data set of a config in a folder, on the current executor."""
    config = load_config(path)
    return prepare(config, config.datasets[0], DatasetLayout(str(folder))).bank


def test_a_run_keeps_the_nearest_pairs_though_its_first_backbone_fails(
    tmp_path: Path, write_config: WriteConfig
) -> None:
    write_config({"classes": MANY}, backbones=[BROKEN, TINY])
    with using(InProcess()):
        outcome = go(tmp_path)
    assert set(outcome.failures) == {("scenes", "broken")}
    stored = tmp_path / "run" / "scenes" / "prompts.parquet"
    bank = PromptBank.from_table(storage.read_table(str(stored)))
    assert pairs_of(bank) == nearest(MANY, 30)
    assert len(bank.compound) < len(MANY) * (len(MANY) - 1) // 2


def test_the_bank_is_the_same_in_process_and_on_ray(
    tmp_path: Path, write_config: WriteConfig, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_config(FEW_PAIRS)
    with using(InProcess()):
        here = bank_of(path, tmp_path / "here")
    assert pairs_of(here) == nearest(list(CLASSES), 3)

    def forbidden(*_: Any) -> None:
        raise AssertionError("the driver loads a model")

    monkeypatch.setattr("sparc_dist.backbones.models.Backbone", forbidden)
    assert bank_of(path, tmp_path / "there") == here
    # With a language model the bank is built by the driver; this one does not answer.
    llm = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "sentences": False}
    prompts = {"source": "llm", "llm": llm, "pairs_per_class": 3}
    path = write_config(FEW_PAIRS | {"prompts": prompts})
    assert bank_of(path, tmp_path / "llm") == here


def test_the_prompts_command_shows_the_nearest_pairs(write_config: WriteConfig) -> None:
    done = sparc_dist("prompts", write_config(FEW_PAIRS), "--show")
    assert done.returncode == 0, done.stderr
    shown = {line.strip() for line in done.stdout.splitlines() if line.startswith("  ")}
    assert {f"{CLASSES[i]} and {CLASSES[j]}" for i, j in nearest(list(CLASSES), 3)} <= shown
    done = sparc_dist("prompts", write_config(FEW_PAIRS, backbones=[BROKEN]))
    assert done.returncode == 2
    assert "none.pt" in done.stderr


def test_names_are_embedded_by_the_first_backbone_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiny, other = (BackboneConfig.model_validate(TINY | {"name": name}) for name in ("a", "b"))
    broken = BackboneConfig.model_validate(BROKEN)
    rows = embed_names([broken, tiny], ["cat", "dog"])
    assert rows.shape[0] == 2
    np.testing.assert_array_equal(rows, embed_names([tiny], ["cat", "dog"]))
    with pytest.raises(UserError, match=r"none\.pt"):
        embed_names([broken, broken], ["cat"])
    encode = Backbone.encode_texts

    def damaged(self: Backbone, texts: list[str]) -> Any:
        return encode(self, texts) * (float("nan") if self.name == "a" else 1)

    monkeypatch.setattr(Backbone, "encode_texts", damaged)
    np.testing.assert_array_equal(embed_names([tiny, other], ["cat", "dog"]), rows)
    with pytest.raises(UserError, match="Backbone a: the model returns embeddings that are not"):
        embed_names([tiny], ["cat"])


def test_a_list_that_cannot_be_written_again_is_kept(
    tmp_path: Path, write_config: WriteConfig, scenes: Path
) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(scenes, photos)
    config = load_config(write_config({"images": str(photos), "classes": ["cat", "dog"]}))
    layout = RunLayout(config.output).dataset("scenes")
    prepare(config, config.datasets[0], layout)
    before = Path(layout.images).stat().st_mtime_ns
    Path(layout.marker).unlink()
    for path in photos.iterdir():
        path.unlink()
    with pytest.raises(UserError, match="contains no images"):
        prepare(config, config.datasets[0], layout)
    assert Path(layout.images).stat().st_mtime_ns == before
