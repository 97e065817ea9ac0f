"""The results of the reference implementation, in one piece and through shards."""

import numpy as np
import pytest

from sparc_dist.core import Method, Positives, Reached, mean_average_precision
from sparc_dist.core.average_precision import average_precision
from tests.support.cases import cut, golden
from tests.support.fitting import debiased_and_final, fit_sparc


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_every_class_of_all_three_columns_equals_the_reference(pieces: int) -> None:
    scores, mentions, labels, expected = golden()
    shards = cut(scores, pieces)
    assert len(shards) == pieces
    fusion = fit_sparc(lambda: shards, mentions, Method())
    finals = [(shard.singleton, *debiased_and_final(fusion, shard)) for shard in shards]
    edges = np.cumsum([len(shard) for shard in shards])[:-1]
    truths = np.split(labels, edges)
    for column, name in enumerate(("zsclip", "debiased", "sparc")):
        parts = [final[column].astype(np.float32) for final in finals]
        positives = Positives.of(parts[0], truths[0])
        for part, truth in zip(parts[1:], truths[1:], strict=True):
            positives = positives + Positives.of(part, truth)
        reached = Reached.of(parts[0], positives)
        for part in parts[1:]:
            reached = reached + Reached.of(part, positives)
        aps = average_precision(positives, reached)
        np.testing.assert_allclose(
            np.array(aps), list(expected[name]["AP"].values()), rtol=0, atol=1e-6
        )
        assert mean_average_precision(aps) == pytest.approx(expected[name]["mAP"], abs=1e-6)
