"""The 240 real VOC photos, labelled with a labeler fitted on other images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sparc_dist.cli import main
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.runs.run import open_unit
from sparc_dist.serving import Labeler
from tests.support.service import service

pytestmark = [pytest.mark.ray, pytest.mark.slow]

VOC = Path(__file__).parents[3] / "shared" / "data" / "VOC2007"


@pytest.mark.skipif(not VOC.exists(), reason="the shared data is not here")
def test_apply_the_function_and_the_service_give_the_same_scores(
    labeler_file: Path, tmp_path: Path
) -> None:
    photos = sorted((VOC / "JPEGImages").glob("*.jpg"))
    assert len(photos) == 240
    labeler = Labeler.load(labeler_file)
    expected = labeler(photos)
    assert not any(image.error for image in expected)
    with using(InProcess()):
        out = str(tmp_path / "out")
        assert main(["apply", str(labeler_file), str(VOC / "JPEGImages"), "--out", out]) == 0
    (applied,) = open_unit(out).labels()
    assert applied.ids == [photo.name for photo in photos]
    found = []
    with service(labeler_file) as running:
        for start in range(0, len(photos), 24):
            contents = [photo.read_bytes() for photo in photos[start : start + 24]]
            found += running.label(*contents).json["images"]
    # Batches of another size may sum in another order.
    scores = np.array([[*image.scores.values()] for image in expected])
    served = np.array([[answer["scores"][name] for name in labeler.classes] for answer in found])
    np.testing.assert_allclose(served, scores, atol=1e-4)
    np.testing.assert_allclose(applied.scores, scores, atol=1e-4)
    for image, answer, present in zip(expected, found, applied.present, strict=True):
        assert answer["labels"] == image.labels
        assert {*image.labels} == {labeler.classes[i] for i in np.flatnonzero(present)}
