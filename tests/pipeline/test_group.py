"""What scoring a group needs: weights alike on all nodes, a GPU only to score, a second try."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ray.exceptions import ActorDiedError

from sparc_dist.config import BackboneConfig, ResourcesConfig, load_config
from sparc_dist.pipeline.embed import Embedded, Loaded
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.pipeline.map_phase import ShardSteps
from sparc_dist.pipeline.score import ScoreShard, _bytes_of
from sparc_dist.planning import Capacity, Scorers
from sparc_dist.prompts import PromptBank
from sparc_dist.runner import run
from sparc_dist.runs import Results
from tests.support.command import outcome_hashes

WriteConfig = Callable[..., str]
TWO = [{"name": name, "model": "sparc-tiny"} for name in ("one", "two")]
FEW = {"classes": ["cat", "dog", "car"], "background": "none"}


@dataclass
class Fragile(InProcess):
    """Loses its scorer after one shard whenever that holds several backbones, as Ray would tell.

    groups: the backbones of each group that was begun. asked: the GPUs of each request.
    """

    groups: list[int] = field(default_factory=list)
    asked: list[int | None] = field(default_factory=list)

    def score(self, steps: ShardSteps, *rest: Any) -> Iterator[Mapping[str, Any]]:
        """Scores shards, or one."""
        for number, row in enumerate(super().score(steps, *rest)):
            backbones = row["done"]
            if number == 0:
                self.groups.append(len(backbones))
            yield row
            if len(backbones) > 1:
                raise ActorDiedError

    @contextmanager
    def workers(self, resources: ResourcesConfig) -> Iterator[Capacity]:
        """Writes down what is asked for."""
        self.asked.append(resources.gpus)
        with super().workers(resources) as capacity:
            yield capacity


def score(path: str, executor: InProcess) -> Results:
    with using(executor):
        return run(load_config(path))


def test_a_group_whose_scorer_died_is_scored_one_by_one_to_the_same_bytes(
    write_config: WriteConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not score(write_config(FEW, backbones=TWO), InProcess()).failures
    (tmp_path / "run").rename(tmp_path / "whole")
    fragile = Fragile()
    assert not score(write_config(FEW, backbones=TWO), fragile).failures
    assert fragile.groups == [2, 1, 1]
    assert "Scoring the backbones one by one." in capsys.readouterr().err
    for unit in ("scenes/one", "scenes/two", "scenes/ensemble"):
        found, whole = (outcome_hashes(tmp_path / name, unit) for name in ("run", "whole"))
        assert found == whole


def test_a_start_with_only_the_reduce_left_asks_for_no_gpu(
    write_config: WriteConfig, tmp_path: Path
) -> None:
    resources = {"scorers": 1, "gpus_per_scorer": 0, "gpus": 2}
    config, executor = write_config(FEW, resources=resources), Fragile()
    assert not score(config, executor).failures
    unit = tmp_path / "run" / "scenes" / "tiny"
    expected = outcome_hashes(tmp_path / "run", "scenes/tiny")
    (unit / "metrics.json").unlink()
    assert not score(config, executor).failures
    assert executor.asked == [2, None]
    # Unless it turns out that some scores are damaged, and have to be made again.
    (unit / "metrics.json").unlink()
    shutil.rmtree(unit / "reduce")
    (unit / "scores" / "00001.parquet").write_bytes(b"damaged")
    assert not score(config, executor).failures
    assert executor.asked == [2, None, None, 2]
    assert outcome_hashes(tmp_path / "run", "scenes/tiny") == expected


def test_a_scorer_with_other_weights_than_those_of_the_texts_fails(
    write_config: WriteConfig,
) -> None:
    from sparc_dist.backbones.models import Backbone

    (config,) = load_config(write_config(FEW)).backbones
    backbone = Backbone(config)
    texts = backbone.embed(PromptBank(("cat",), ()))
    same, other = backbone.weights_sha256, "0" * 64
    of = ([config], 8, Scorers(1, 0, 1))
    for weights in (same, other):
        loaded = Loaded(backbone.input, weights, "cpu", 0.0)
        told = ScoreShard(*of, lambda _: {config.name: (texts, loaded)}).failures  # noqa: B023
        assert [*told] == [name for name in [config.name] if weights == other]
    (why,) = told.values()
    assert why.startswith("Backbone tiny: the hash of its weights on ")
    assert f"begins with {same[:12]}, and of those that embedded the prompts with 0000" in why


def test_a_scorer_loads_its_models_before_it_waits_for_texts(write_config: WriteConfig) -> None:
    from sparc_dist.backbones.models import Backbone

    configs = load_config(write_config(FEW, backbones=TWO)).backbones
    events = []

    class Watched(ScoreShard):
        def _load(self, config: BackboneConfig, device: str, turn: Any) -> Any:
            events.append(config.name)
            return super()._load(config, device, turn)

    def texts(held: Mapping[str, Backbone]) -> dict[str, Embedded]:
        events.append("texts")
        return {name: f"no texts for {name}" for name in held}

    scorer = Watched(configs, 8, Scorers(1, 0, 1), texts)
    assert events == ["one", "two", "texts"]
    assert scorer.failures == {"one": "no texts for one", "two": "no texts for two"}


def test_pixels_of_several_sizes_are_not_copied() -> None:
    rng = np.random.default_rng(0)
    squares = [rng.integers(0, 256, (2, side, side, 3), dtype=np.uint8) for side in (3, 4)]
    rows = [[b"before"], [square.reshape(-1).data for square in squares], [b""]]
    column = pa.chunked_array([pa.array(rows, pa.list_(pa.large_binary()))])
    found = _bytes_of(column[1].values)
    for content, square in zip(found, squares, strict=True):
        np.testing.assert_array_equal(content, square.reshape(-1))
    (data,) = {buffer.address for buffer in column.chunk(0).values.buffers()[2:]}
    assert found[0].ctypes.data - data == len(b"before")
    assert [len(content) for content in _bytes_of(column[2].values)] == [0]
