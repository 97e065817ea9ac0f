"""The real VOC photos from end to end, where they are."""

from __future__ import annotations

from pathlib import Path

import open_clip
import pytest
import torch

from sparc_dist.config import parse, resolve
from sparc_dist.report import write_report
from sparc_dist.runner import run
from tests.support.openai_form import write_openai_form

pytestmark = pytest.mark.slow  # each starts models or Ray several times

VOC = Path(__file__).parents[3] / "shared" / "data" / "VOC2007"


@pytest.mark.skipif(not VOC.exists(), reason="the shared data is not here")
def test_240_photos_under_a_checkpoint_of_openais_form(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = open_clip.create_model("ViT-S-32-alt", load_weights=False).eval()
    write_openai_form(model, tmp_path / "small.pt")
    raw = {
        "output": "run",
        "datasets": [{"name": "voc", "kind": "voc2007", "images": str(VOC)}],
        "backbones": [{"name": "small", "model": "ViT-S-32-alt", "weights": "./small.pt"}],
    }
    outcome = run(resolve(parse(raw, "test"), str(tmp_path)))
    assert not outcome.failures
    metrics = outcome.metrics["voc", "small"]
    assert (metrics["images"], metrics["errors"]["images"], metrics["labelled"]) == (240, 0, 240)
    write_report(outcome.layout.root)
    table = (tmp_path / "run" / "report" / "tables.md").read_text()
    assert "- voc: 4712 of 4952 listed images are not in JPEGImages." in table
    # Weights that know nothing rank near chance, which is the share of positives.
    assert 2 < metrics["sparc"]["mAP"] < 30
