"""User journeys through the command as a user would type it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparc_dist import __version__
from sparc_dist.cli import main
from sparc_dist.config import load_config
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.runner import run
from tests.support.cases import golden_answer, write_three_classes
from tests.support.command import COMMAND, sparc_dist, sparc_dist_process

GOLDEN = Path(__file__).parents[1] / "golden"


def test_version() -> None:
    assert sparc_dist_process("--version").stdout == f"sparc-dist {__version__}\n"


COMMANDS = "demo label run plan status report decide ask backbones datasets prompts fuse".split()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_reads_like_a_manual_page(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*arguments: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            main(arguments)
        return capsys.readouterr().out

    text = shown(command, "--help")
    assert f"sparc-dist {command}" in text
    assert "exit codes:" in text
    assert command in shown("--help")


@pytest.mark.parametrize(
    "source",
    [
        ("--scores", GOLDEN / "scores.npz", "--prompts", GOLDEN / "prompts.json"),
        (
            "--authors-dir",
            GOLDEN / "authors_layout",
            "--dataset",
            "VOC2007",
            "--backbone",
            "ViT-B16",
        ),
    ],
    ids=["npz", "authors"],
)
def test_fuse_equals_the_reference(tmp_path: Path, source: tuple[object, ...]) -> None:
    done = sparc_dist("fuse", *source, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "sparc  mAP 58.2243" in done.stdout
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    expected = json.loads((GOLDEN / "expected.json").read_text())["expected"]
    for name, column in expected.items():
        assert metrics[name]["mAP"] == pytest.approx(column["mAP"], abs=1e-6)
        assert metrics[name]["AP"] == pytest.approx(column["AP"], abs=1e-6)
    final = pq.read_table(tmp_path / "out" / "final.parquet")
    names = ["image_id", "zsclip", "debiased", "sparc", "duo", "sparc_background", "duo_total"]
    assert final.schema.names == names
    assert metrics["duo"]["mAP"] == pytest.approx(61.1558, abs=1e-4)
    assert final.num_rows == 800


def test_fuse_takes_background_columns_after_those_of_the_classes(tmp_path: Path) -> None:
    scores, prompts = write_three_classes(tmp_path)
    out = tmp_path / "out"
    done = sparc_dist("fuse", "--scores", scores, "--prompts", prompts, "--out", out)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((out / "metrics.json").read_text())
    expected = golden_answer("duo")["three classes"]
    assert metrics["duo"]["AP"] == pytest.approx(expected["AP"], abs=1e-6)
    assert set(metrics["sparc"]["AP"]) == set(expected["AP"])
    labels = pq.read_table(out / "labels.parquet")
    assert set(labels["class"].to_pylist()) == {"cat", "dog", "sofa"}
    assert f"micro-F1 {metrics['duo']['decisions']['micro_f1']:.1f}" in done.stdout


def test_fuse_names_a_class_that_scores_every_image_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    singleton, auxiliary = rng.normal(0.2, 0.02, (2, 60, 3))
    singleton[:, 1] = 0.2
    compound = rng.normal(0.2, 0.02, (60, 1))
    np.savez(tmp_path / "s.npz", singleton=singleton, auxiliary=auxiliary, compound=compound)
    prompts = {"classes": ["cat", "unseen", "sofa"], "prompts": ["cat and sofa"]}
    (tmp_path / "p.json").write_text(json.dumps(prompts))
    source = ("--scores", tmp_path / "s.npz", "--prompts", tmp_path / "p.json")
    done = sparc_dist("fuse", *source, "--out", tmp_path / "out")
    assert "Every image scores the same for unseen" in done.stdout
    labels = pq.read_table(tmp_path / "out" / "labels-wide.parquet")
    assert labels["unseen"].null_count == 60


def test_fuse_without_labels_and_with_an_empty_class(tmp_path: Path) -> None:
    arrays = dict(np.load(GOLDEN / "scores.npz"))
    prompts = ("--prompts", GOLDEN / "prompts.json")
    labels = arrays.pop("labels")
    np.savez(tmp_path / "bare.npz", **arrays)
    done = sparc_dist("fuse", "--scores", tmp_path / "bare.npz", *prompts, "--out", tmp_path / "a")
    assert done.returncode == 0
    assert "there is no mAP" in done.stdout
    assert not (tmp_path / "a" / "metrics.json").exists()
    assert pq.read_table(tmp_path / "a" / "labels.parquet").num_rows == 800 * 20
    labels[:, 3] = 0
    np.savez(tmp_path / "empty.npz", **arrays, labels=labels)
    means = {}
    for rule in ("skip", "zero"):
        scores = ("--scores", tmp_path / "empty.npz", *prompts)
        out = tmp_path / rule
        assert sparc_dist("fuse", *scores, "--out", out, "--empty-class", rule).returncode == 0
        metrics = json.loads((out / "metrics.json").read_text())
        assert metrics["sparc"]["AP"]["boat"] is None
        means[rule] = metrics["sparc"]["mAP"]
    assert means["zero"] == pytest.approx(means["skip"] * 19 / 20)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "Give either --scores and --prompts, or --authors-dir"),
        (("--scores", "a.npz"), "Give either --scores and --prompts"),
        (("--scores", "none.npz", "--prompts", "none.json"), "There is no file none.npz"),
    ],
)
def test_fuse_refuses_in_one_sentence_and_writes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    done = sparc_dist("fuse", *arguments, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.startswith(f"sparc-dist: {expected}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    source = ("--scores", GOLDEN / "scores.npz", "--prompts", GOLDEN / "prompts.json")
    done = sparc_dist("fuse", *source, "--out", tmp_path / "file")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "file") in done.stderr


def test_a_wrong_config_is_refused_before_anything_is_written(
    tmp_path: Path, write_config: Callable[..., str]
) -> None:
    done = sparc_dist("run", write_config(shard_sise=8))
    assert done.returncode == 2
    assert "shard_sise: unknown key; did you mean 'shard_size'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_demo_from_one_command(tmp_path: Path) -> None:
    done = sparc_dist("demo", "--out", tmp_path / "demo", "--images", 60)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "demo/scenes/sparc-tiny/metrics.json").read_text())
    for title, name in (("ZSCLIP", "zsclip"), ("debiased", "debiased"), ("SPARC", "sparc")):
        shown = f"{metrics[name]['mAP']:.1f}"
        assert f"| scenes | {title} | {shown} | {shown} |" in done.stdout
    assert f"Open {tmp_path / 'demo'}/report/index.html" in done.stdout
    assert "scenes × sparc-tiny  scoring  60/60 images" in done.stderr
    assert "Traceback" not in done.stderr
    again = sparc_dist("demo", "--out", tmp_path / "demo", "--images", 60)
    assert again.returncode == 0
    assert "nothing was missing" in again.stderr
    assert again.stdout == done.stdout


def test_a_failed_unit_is_exit_code_1(tmp_path: Path, write_config: Callable[..., str]) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "broken.jpg").write_bytes(b"no")
    done = sparc_dist("run", write_config({"images": str(tmp_path / "photos")}))
    assert done.returncode == 1
    assert "scenes × tiny failed: None of the 1 images of scenes could be read" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("where", ["here", pytest.param("on Ray", marks=pytest.mark.ray)])
def test_what_is_stopped_can_be_resumed(
    tmp_path: Path,
    write_config: Callable[..., str],
    request: pytest.FixtureRequest,
    where: str,
    how: signal.Signals,
    code: int,
) -> None:
    ray = request.getfixturevalue("cluster") if where == "on Ray" else ""
    few: dict[str, Any] = {"classes": ["cat", "dog"], "background": "none"}
    config = write_config(few, shard_size=5)
    running = subprocess.Popen(
        [COMMAND, "run", config],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RAY_ADDRESS": ray},
        # A shell that starts the tests in the background has them ignore Ctrl-C, and all below.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    first = tmp_path / "run" / "scenes" / "tiny" / "done" / "00000.json"
    deadline = time.monotonic() + 120
    while not first.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(how)
    _, said = running.communicate(timeout=120)
    assert running.returncode == code, said
    assert said.endswith("sparc-dist: stopped; run the same command again to resume.\n")
    assert "Traceback" not in said
    assert not (tmp_path / "run" / "lease.json").exists()
    markers = list(first.parent.glob("*.json"))
    assert 0 < len(markers) < 12
    kept = {marker: marker.stat().st_mtime_ns for marker in markers}
    with using(InProcess()):
        assert not run(load_config(config)).failures
    assert len(list(first.parent.glob("*.json"))) == 12
    assert {marker: marker.stat().st_mtime_ns for marker in kept} == kept


def test_datasets_lists_every_kind_with_its_needs() -> None:
    text = sparc_dist("datasets").stdout
    for kind in ("voc2007", "coco2014", "nuswide", "folder", "manifest", "webdataset"):
        assert f"{kind}\n" in text
    assert "instances_{train,val}2014.json" in text
    assert text.count("needs  ") == text.count("from   ") == 6


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        f"{COMMAND} datasets | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "voc2007\n", "")


def test_prompts_are_made_and_shown_without_images_or_models(
    tmp_path: Path, write_config: Callable[..., str]
) -> None:
    config = write_config({"images": "nowhere", "classes": ["cat", "dog", "sofa"]})
    done = sparc_dist("prompts", config, "--show")
    assert done.returncode == 0, done.stderr
    assert "background 25 classes" in done.stdout
    assert "compound   78: 78 pair" in done.stdout
    assert "background: car, bus, bicycle, " in done.stdout
    assert "  cat and sofa\n" in done.stdout
    table = pq.read_table(tmp_path / "run" / "scenes" / "prompts.parquet")
    assert table["text"].to_pylist()[-1] == "sofa and bench"


def test_prompts_without_background_classes(write_config: Callable[..., str]) -> None:
    config = write_config({"classes": ["cat", "dog", "sofa"], "background": "none"})
    done = sparc_dist("prompts", config, "--show")
    assert "background: none\n" in done.stdout
    assert "compound   3: 3 pair" in done.stdout
    assert "fewer than 4: cat (2), dog (2), sofa (2)" in done.stdout


def test_what_nobody_foresaw_is_a_sentence_and_a_traceback_only_on_request(
    write_config: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_bytes(b"no archive")
    table = f"zip://table.csv::{tmp_path}/x.csv"
    config = write_config({"prompts": {"source": "labels", "labels": table}})
    done = sparc_dist("prompts", config)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "BadZipFile" in done.stderr
    assert "--verbose shows more" in done.stderr
    assert "Traceback" in sparc_dist("--verbose", "prompts", config).stderr
