"""Units are assigned to the resources of a cluster, or planning fails with an error."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparc_dist.backbones import cost_of
from sparc_dist.config import OPENAI, TINY, Config, ResourcesConfig, parse
from sparc_dist.errors import UserError
from sparc_dist.planning import GB, BackboneGroup, Capacity, plan, plan_scorers
from sparc_dist.planning.plan import own_memory, scorer_bytes

GPUS = Capacity(cpus=4, gpus=2, memory=24 * GB, object_store=10 * GB)
LAPTOP = Capacity(cpus=8, gpus=0, memory=12 * GB, object_store=4 * GB)
SMALL = 2 * GB


@pytest.mark.parametrize(
    ("resources", "capacity", "expected"),
    [
        ({}, GPUS, (2, 1.0)),
        ({"gpus_per_scorer": 0.25}, GPUS, (8, 0.25)),
        ({"gpus_per_scorer": 0.6}, GPUS, (2, 0.6)),
        ({"gpus_per_scorer": 0}, GPUS, (2, 0.0)),
        ({}, LAPTOP, (4, 0.0)),
        ({"scorers": 3}, LAPTOP, (3, 0.0)),
        ({"scorers": 6}, LAPTOP, (6, 0.0)),
        ({}, Capacity(1, 0, 4 * GB, GB), (1, 0.0)),
    ],
)
def test_scorers_use_what_the_cluster_has(
    resources: dict[str, Any], capacity: Capacity, expected: tuple[int, float]
) -> None:
    scorers = plan_scorers(ResourcesConfig.model_validate(resources), capacity, SMALL)
    assert (scorers.actors, scorers.gpus) == expected


@pytest.mark.parametrize(
    ("resources", "capacity", "early"),
    [
        ({}, LAPTOP, True),
        ({}, GPUS, False),
        ({"gpus_per_scorer": 0}, GPUS, True),
        ({"scorers": 1}, Capacity(2, 0, 3.5 * GB, GB), True),
        ({"scorers": 1}, Capacity(2, 0, 2.9 * GB, GB), False),
    ],
)
def test_scorers_start_with_the_text_pass_on_cpus_with_memory_for_both(
    resources: dict[str, Any], capacity: Capacity, early: bool
) -> None:
    raw: dict[str, Any] = {
        "output": "run",
        "datasets": [{"name": "d", "images": "m.csv", "classes": ["cat"]}],
    }
    raw |= {"backbones": [{"name": "tiny", "model": TINY}], "resources": resources}
    config = Config.model_validate(raw)
    (group,) = plan(config, {("d", "tiny"): cost_of(config.backbones[0])}, capacity)
    assert group.starts_early(capacity) == early


@pytest.mark.parametrize(
    ("resources", "capacity", "need", "reason"),
    [
        ({"gpus_per_scorer": 0.5}, LAPTOP, SMALL, "asks for 0.5 GPUs, but the cluster has 0"),
        ({"gpus_per_scorer": 0.5, "scorers": 5}, GPUS, SMALL, "5 actors with 0.5 GPUs each"),
        ({}, Capacity(0, 1, GB, GB), SMALL, "no CPU to decode images"),
        ({}, GPUS, 20 * GB, "needs 20.0 GB, but a scorer has 16.0 GB of a GPU's memory"),
        ({"gpus_per_scorer": 0.1}, GPUS, SMALL, "a scorer has 1.6 GB"),
        ({}, LAPTOP, 13 * GB, "needs 13.0 GB of memory, but a node has 12.0 GB"),
        ({}, Capacity(8, 0, 12 * GB, GB, nodes=8), SMALL, "a node has 1.5 GB for workers"),
        ({"scorers": 9}, LAPTOP, SMALL, "9 actors with 2.0 GB each, but the cluster has 12.0"),
    ],
)
def test_what_the_cluster_cannot_hold_is_an_error(
    resources: dict[str, Any], capacity: Capacity, need: float, reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        plan_scorers(ResourcesConfig.model_validate(resources), capacity, need)


def nine(**changes: Any) -> Config:
    """The paper's nine backbones over two data sets."""
    coco = {"name": "coco", "kind": "coco2014", "images": "/coco"}
    voc = {"name": "voc", "kind": "voc2007", "images": "/voc"}
    return parse({"output": "/run", "datasets": [coco, voc], **changes}, "test")


def planned(config: Config, capacity: Capacity) -> list[BackboneGroup]:
    costs = {
        (data.name, backbone.name): cost_of(backbone.sized(data.resnet_size))
        for data in config.datasets
        for backbone in config.backbones
    }
    return plan(config, costs, capacity)


def test_the_papers_nine_are_planned_when_no_backbone_is_named() -> None:
    config = nine()
    assert [backbone.name for backbone in config.backbones] == list(OPENAI)
    assert {backbone.weights for backbone in config.backbones} == {"openai"}


def test_nine_backbones_share_scorers_where_memory_allows() -> None:
    large = Capacity(cpus=64, gpus=8, memory=400 * GB, object_store=150 * GB)
    first, second = planned(nine(batch_size=16, resources={"gpu_memory_gb": 40}), large)
    assert (first.dataset, second.dataset) == ("coco", "voc")
    assert len(first.backbones) == len(second.backbones) == 9
    assert first.sizes == [224, 336, 448]
    assert second.sizes == [224, 336, 512]
    assert (first.scorers.actors, first.scorers.gpus) == (8, 1.0)
    assert first.decoders == 64


def test_less_memory_means_more_groups_and_no_scorer_over_its_memory() -> None:
    small = Capacity(cpus=8, gpus=1, memory=30 * GB, object_store=2 * GB)
    config = nine(batch_size=8, resources={"gpu_memory_gb": 8})
    groups = planned(config, small)
    assert len(groups) > 2
    for group in groups:
        assert group.scorer_bytes <= 8 * GB
        assert 1 <= group.decoders < 8
    names = [b.name for group in groups if group.dataset == "coco" for b in group.backbones]
    assert sorted(names) == sorted(OPENAI)


def test_one_backbone_per_scorer_on_request() -> None:
    groups = planned(nine(batch_size=8, resources={"backbones_per_scorer": 1}), GPUS)
    assert [len(group.backbones) for group in groups] == [1] * 18
    alone = planned(nine(batch_size=1, resources={"gpu_memory_gb": 40}), GPUS)[0].alone("RN50")
    assert [backbone.name for backbone in alone.backbones] == ["RN50"]


def test_an_impossible_backbone_is_named() -> None:
    with pytest.raises(UserError, match=r"^RN50x64 needs .* lower batch_size"):
        planned(nine(resources={"gpu_memory_gb": 2}), GPUS)


@settings(max_examples=60, deadline=None)
@given(
    cpus=st.integers(1, 256),
    gpus=st.integers(0, 64),
    memory=st.floats(1, 2000),
    gpu_memory=st.sampled_from([4, 8, 16, 24, 80]),
    share=st.sampled_from([None, 0, 0.25, 0.5, 1]),
    batch=st.sampled_from([1, 16, 64]),
)
def test_any_plan_stays_within_the_capacity(
    cpus: int, gpus: int, memory: float, gpu_memory: int, share: float | None, batch: int
) -> None:
    capacity = Capacity(cpus, gpus, memory * GB, memory * GB / 2)
    resources = {"gpu_memory_gb": gpu_memory, "gpus_per_scorer": share}
    config = nine(batch_size=batch, resources=resources)
    try:
        groups = planned(config, capacity)
    except UserError:
        return
    members = [(group.dataset, b.name) for group in groups for b in group.backbones]
    assert sorted(members) == sorted(product(("coco", "voc"), OPENAI))
    for group in groups:
        scorers = group.scorers
        assert scorers.actors * scorers.gpus <= gpus
        assert 1 <= group.decoders <= cpus
        each = gpu_memory * GB * scorers.gpus if scorers.gpus else capacity.memory / scorers.actors
        costs = [cost_of(backbone) for backbone in group.backbones]
        assert scorer_bytes(costs, batch) <= each


@pytest.mark.parametrize(
    ("name", "limit", "expected"),
    [
        ("memory.max", "1073741824\n", 2**30),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "1073741824\n", 2**30),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("none", "", None),
    ],
)
def test_a_container_has_the_memory_that_it_is_limited_to(
    tmp_path: Path, name: str, limit: str, expected: int | None
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(limit)
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert own_memory(tmp_path) == (expected or whole)
