"""The paired bootstrap on a unit in storage, in this process."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sparc_dist.config import ResourcesConfig
from sparc_dist.core.bootstrap import DRAWS, resampling_weights
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import in_process
from sparc_dist.research import resampling
from sparc_dist.research.resampling import resampled_means, stored_scores
from sparc_dist.research.session import ExperimentSession, Options, open_run
from tests.support.cases import golden, resampled_ap
from tests.support.golden_unit import golden_fusions, write_unit


def test_means_are_those_of_each_class_and_methods_are_paired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_unit(tmp_path, "duo")
    monkeypatch.setattr(resampling, "TASK_BYTES", 2 * 801 * 12 * 2)  # two classes a task
    with in_process(ResourcesConfig()) as light, using(light):
        (unit,) = ExperimentSession(open_run(str(tmp_path)), Options(), ()).units.values()
        methods = ("sparc", "duo")
        found = resampled_means(unit, methods, partial(stored_scores, unit.shards, methods))
    final, labels = golden_fusions()[1], golden()[2]
    weights = resampling_weights(801, range(40))[:, :800]  # the last image is unreadable
    for name in methods:
        columns = zip(final.methods[name].T, labels.T, strict=True)
        expected = np.nanmean([resampled_ap(*column, weights) for column in columns], axis=0)
        assert len(found[name].draws) == DRAWS
        np.testing.assert_allclose(found[name].draws[:40], expected, atol=1e-9)
    assert found["duo"].observed == pytest.approx(61.1558, abs=1e-4)
    gap, low, high = found["duo"].minus(found["sparc"])
    assert gap == pytest.approx(61.1558 - 58.22, abs=0.01)
    assert 0 < low < gap < high  # duo is better, beyond chance
    assert high - low < np.ptp(np.quantile(found["duo"].draws, [0.025, 0.975]))  # being paired
