"""The names of models, known without importing open_clip."""

from __future__ import annotations

import json
import subprocess
import sys

import open_clip
import pytest

from sparc_dist.backbones.names import check_model, model_names
from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError

CODE = """
import json, sys
from sparc_dist.backbones.names import model_names
names = model_names()
assert "open_clip" not in sys.modules
print(json.dumps(names))
"""


def test_the_names_are_those_of_open_clip_and_it_is_not_imported() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    # Other tests may have added models to this process.
    missing = {*open_clip.list_models(), "sparc-tiny"} - {*json.loads(done.stdout)}
    assert missing <= {"small-vit"}
    assert {*json.loads(done.stdout)} <= {*open_clip.list_models(), "sparc-tiny"}


@pytest.mark.parametrize(
    ("model", "weights", "first"),
    [
        ("ViT-B-99", "openai", "ViT-B-32-quickgelu, ViT-B-16-quickgelu"),
        ("vitb32", "laion2b_s34b_b79k", "ViT-B-32"),
        ("ViT-B/16-SigLip", "webli", "ViT-B-16-SigLIP"),
        ("nothing like it", "openai", "RN50x16-quickgelu"),
    ],
)
def test_an_unknown_model_is_answered_with_names_that_exist(
    model: str, weights: str, first: str
) -> None:
    with pytest.raises(UserError) as caught:
        check_model(BackboneConfig(name="b", model=model, weights=weights))
    known, _, named = str(caught.value).partition("; did you mean ")
    assert known == f"Backbone b: open_clip has no model {model}"
    assert named.startswith(first)
    assert {*named.removesuffix("?").split(", ")} <= {*model_names()}
