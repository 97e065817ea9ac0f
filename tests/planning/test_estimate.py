"""Estimates follow from given speeds, and the plan command prints them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparc_dist import storage
from sparc_dist.backbones import Cost
from sparc_dist.cli import main
from sparc_dist.config import BackboneConfig
from sparc_dist.datasets import DatasetSize
from sparc_dist.planning import (
    GB,
    BackboneGroup,
    Capacity,
    Scorers,
    Speeds,
    estimate,
    estimate_text,
)
from sparc_dist.planning.estimate import stored_bytes
from sparc_dist.planning.plan import scorer_bytes

SMALL = Cost(224, gflop=10, parameters=1000, activation_bytes=1000, width=512)
LARGE = Cost(448, gflop=30, parameters=1000, activation_bytes=1000, width=1024)
SIZE = DatasetSize(images=36_000, classes=80, compounds=1000)
SPEEDS = Speeds(gpu_tflops=1, half_tflops=4, core_gflops=10, decodes=50)


def group(scorers: Scorers, decoders: int, precision: str = "fp32") -> BackboneGroup:
    names = (("small", "fp32"), ("large", precision))
    backbones = tuple(
        BackboneConfig.model_validate(
            {"name": name, "model": "RN50", "weights": "x.pt", "precision": kind}
        )
        for name, kind in names
    )
    return BackboneGroup("coco", backbones, (SMALL, LARGE), scorers, 2 * GB, decoders)


def test_on_gpus_the_slower_of_scoring_and_decoding_sets_the_pace() -> None:
    capacity = Capacity(cpus=8, gpus=4, memory=GB, object_store=GB, nodes=3)
    found = estimate(group(Scorers(4, 1.0, 2), 8), SIZE, capacity, SPEEDS)
    # 40 GFLOP per image at 4 TFLOP/s; decoding is faster, at 8 × 50 photos per second.
    assert found.images_per_second == pytest.approx(100)
    assert found.bound == "scoring"
    assert found.hours == pytest.approx(0.1)
    assert found.device_hours == pytest.approx(0.4)
    assert [unit.share for unit in found.units] == pytest.approx([0.25, 0.75])
    assert found.units[1].images_per_second == pytest.approx(4000 / 30)
    slow = estimate(group(Scorers(4, 1.0, 2), 1), SIZE, capacity, SPEEDS)
    assert slow.bound == "decoding"
    assert slow.images_per_second == pytest.approx(50)
    half = estimate(group(Scorers(4, 1.0, 2), 8, "bf16"), SIZE, capacity, SPEEDS)
    auto = estimate(group(Scorers(4, 1.0, 2), 8, "auto"), SIZE, capacity, SPEEDS)
    assert auto.images_per_second == half.images_per_second
    assert half.device_hours == pytest.approx(10 * (0.01 + 0.0075))
    text = estimate_text([found], capacity, price=2)
    assert "Total: 6 min on 3 nodes, 670 MB, 0.60 at 2 per node-hour." in text
    assert "4 scorers with 1 GPU and 2.0 GB each; 8 CPUs decode to 224, 448 pixels" in text


def test_shares_of_gpus_count_in_proportion() -> None:
    capacity = Capacity(cpus=80, gpus=4, memory=GB, object_store=GB)
    whole = estimate(group(Scorers(4, 1.0, 2), 80), SIZE, capacity, SPEEDS)
    halves = estimate(group(Scorers(8, 0.5, 2), 80), SIZE, capacity, SPEEDS)
    assert halves.images_per_second == pytest.approx(whole.images_per_second)


def test_on_cpus_scoring_and_decoding_share_the_cores() -> None:
    capacity = Capacity(cpus=4, gpus=0, memory=GB, object_store=GB)
    found = estimate(group(Scorers(2, 0, 2), 4), SIZE, capacity, SPEEDS)
    assert 1 / found.images_per_second == pytest.approx(40 / 40 + 1 / 200)
    assert found.device_hours == pytest.approx(40)


def test_patches_are_compared_with_every_prompt() -> None:
    capacity = Capacity(cpus=4, gpus=0, memory=GB, object_store=GB)
    one = group(Scorers(2, 0, 2), 4).alone("small")
    local = replace(one, costs=(replace(SMALL, patches=1000),))
    plain, with_patches = (estimate(each, SIZE, capacity, SPEEDS) for each in (one, local))
    # 1,160 prompts × 1,000 patches × 512 numbers, two operations each
    added = 2e-9 * (2 * 80 + 1000) * 1000 * 512
    assert with_patches.units[0].gflop == pytest.approx(10 + added)
    assert with_patches.device_hours / plain.device_hours == pytest.approx(1 + added / 10)
    assert f" {10 + added:.1f} " in estimate_text([with_patches], capacity)
    extra = scorer_bytes(local.costs, 64) - scorer_bytes(one.costs, 64)
    assert extra == local.costs[0].product_bytes > 0


def test_storage_is_what_a_unit_writes_before_compression() -> None:
    assert stored_bytes(SIZE, SMALL) == 36_000 * 4 * (80 + 80 + 1000 + 512 + 5 * 80)
    more = replace(SIZE, background=10)
    assert stored_bytes(more, SMALL) == 36_000 * 4 * (90 + 90 + 1000 + 512 + 5 * 80 + 2 * 10)


def test_the_plan_command(
    write_config: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    tiny = {"name": "tiny", "model": "sparc-tiny"}
    large = {"name": "L", "model": "ViT-L-14-quickgelu", "weights": "openai"}
    classes = {"classes": ["cat", "dog", "car"]}
    path = write_config(classes, backbones=[tiny, large], resources={})
    assert main(["plan", path, *"--cpus 16 --gpus 2 --memory-gb 64 --price 3".split()]) == 0
    output = capsys.readouterr().out
    assert "scenes: 60 images, 3 classes, 77 background classes, 234 compound prompts" in output
    assert re.search(r"scenes × L +224 +162\.0 ", output)
    assert "2 backbones on 2 scorers with 1 GPU" in output
    assert "at 3 per node-hour" in output
    assert not (tmp_path / "run").exists()

    assert main(["plan", path, *"--cpus 1 --gpus 0 --memory-gb 2".split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("sparc-dist: L needs ")
    assert "lower batch_size, or add memory." in error

    # Sizes that a run has stored are not counted again.
    facts = {"images": 7_000_000, "classes": 9, "compound": 36}
    facts |= {"background": 0, "texts": 36, "rank_numbers": 0}
    storage.write_json(str(tmp_path / "run" / "scenes" / "dataset.json"), facts)
    assert main(["plan", path]) == 0
    output = capsys.readouterr().out
    assert "scenes: 7,000,000 images, 9 classes, 36 compound prompts" in output


def test_the_plan_counts_the_most_pairs_there_can_be_and_loads_no_model(
    write_config: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    missing = {"name": "RN", "model": "RN50-quickgelu", "weights": "none.pt"}
    classes = [f"thing {index}" for index in range(100)]
    path = write_config({"classes": classes}, backbones=[missing])
    assert main(["plan", path, *"--cpus 4 --gpus 0 --memory-gb 64".split()]) == 0
    assert "60 images, 100 classes, 3,000 compound prompts" in capsys.readouterr().out


def test_texts_are_part_of_the_plan() -> None:
    capacity = Capacity(cpus=8, gpus=0, memory=8 * GB, object_store=GB)
    costs = (replace(SMALL, text_gflop=0.5), replace(LARGE, text_gflop=1.5))
    texts = replace(SIZE, images=4, texts=1000)
    both = replace(group(Scorers(2, 0, 2), 8), costs=costs)
    found = estimate(both, texts, capacity, SPEEDS)
    # Two scorers with two threads of 10 GFLOP/s: the larger backbone takes longest.
    assert found.text_seconds == pytest.approx(1000 * 1.5 / 20)
    assert found.hours * 3600 == pytest.approx(found.text_seconds + 4 / found.images_per_second)
    alone = estimate(replace(both, scorers=Scorers(1, 0, 2)), texts, capacity, SPEEDS)
    assert alone.text_seconds == pytest.approx(1000 * 2 / 20)
    assert "texts 1.25 min" in estimate_text([found], capacity)
