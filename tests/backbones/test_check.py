"""Checks of backbones: the names of models, and ``sparc-dist backbones``, which tries each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import open_clip
import pytest

from sparc_dist.backbones.check import check_backbones, check_model, model_names, sized_backbones
from sparc_dist.config import OPENAI, BackboneConfig, Config
from sparc_dist.errors import UserError
from tests.support import openai_form
from tests.support.command import sparc_dist

CODE = """
import json, sys
from sparc_dist.backbones.check import model_names
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


def test_every_backbone_gets_a_line_and_a_broken_one_an_error(
    tmp_path: Path, write_config: Callable[..., str]
) -> None:
    backbones = [
        {"name": "broken", "model": "ViT-B-32-quickgelu", "weights": "none.pt"},
        {"name": "tiny", "model": "sparc-tiny"},
    ]
    done = sparc_dist("backbones", write_config(backbones=backbones))
    assert done.returncode == 1, done.stderr
    title, broken, tiny = done.stdout.splitlines()
    assert title.split() == (
        "backbone input parameters width loaded in peak memory weights".split()
    )
    assert broken.startswith(f"Backbone broken: there is no weights file {tmp_path / 'none.pt'};")
    assert re.fullmatch(r"tiny +64 +\d+\.\d M +\d+ +\d+\.\d s +\d\.\d\d GB  [0-9a-f]{12}", tiny), (
        tiny
    )
    assert done.stderr == ""


def test_help_reads_like_a_manual_page() -> None:
    assert "exit codes:" in sparc_dist("backbones", "--help").stdout


def config_of(*datasets: dict[str, object]) -> Config:
    every = [{"name": f"d{i}", "images": ".", **raw} for i, raw in enumerate(datasets)]
    return Config.model_validate({"output": ".", "datasets": every})


def test_resnets_are_tried_at_every_size_that_a_data_set_asks_for() -> None:
    official = config_of({"kind": "voc2007"}, {"kind": "coco2014"}, {"kind": "nuswide"})
    found = [(backbone.name, backbone.image_size) for backbone in sized_backbones(official)]
    resnets = [name for name in OPENAI if name.startswith("RN")]
    assert found == [(name, None) for name in OPENAI if name not in resnets] + [
        (name, size) for name in resnets for size in (512, 448)
    ]
    folder = config_of({"kind": "folder", "classes": ["cat"]})
    assert [backbone.name for backbone in sized_backbones(folder)] == list(OPENAI)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -9 $$", "RN50: its process was killed by signal 9, most likely for lack of memory"),
        ("echo Oh no >&2; exit 1", r"RN50: cannot be tried \(Oh no\)"),
    ],
)
def test_a_process_that_dies_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!/bin/sh\n{script}\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    *_, last = check_backbones(None)
    assert isinstance(last, UserError)
    assert re.search(message, str(last))


def test_checkpoints_in_openais_form_are_written_to_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    openai_form.main([str(tmp_path / "clip"), "RN50"])
    assert [path.name for path in (tmp_path / "clip").iterdir()] == ["RN50.pt"]
    assert "RN50.pt: 2" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        openai_form.main([str(tmp_path / "clip"), "RN51"])
