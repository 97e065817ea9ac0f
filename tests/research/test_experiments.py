"""Experiments on a finished run, through the command line; no image is read again."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparc_dist.cli import main
from sparc_dist.core import Method, Scores
from sparc_dist.datasets import images
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess, resolved
from sparc_dist.prompts import PromptBank
from sparc_dist.research import EXPERIMENTS
from sparc_dist.research.score_view import views_with
from sparc_dist.research.session import ExperimentSession, Options, open_run
from sparc_dist.research.simulation import Settings, simulate
from sparc_dist.runs import layout, shards
from sparc_dist.runs.layout import EXPERIMENT_FILES
from tests.support.cases import ap
from tests.support.fitting import fit_sparc
from tests.support.sealed import edit_json, write_list


def rows(run: Path, name: str) -> list[dict[str, str]]:
    """Returns the rows of an experiment's table, without those that are only the paper's."""
    with (run / "experiments" / f"{name}.csv").open() as file:
        return [row for row in csv.DictReader(file) if row.get("data set") in (None, "scenes")]


@pytest.fixture(scope="module")
def made(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run without its images, after all experiments."""
    folder = tmp_path_factory.mktemp("made")
    run = folder / "run"
    shutil.copytree(original / "run", run)
    _hide_images(run / "scenes" / "images.parquet")
    with using(InProcess()):
        assert main(["experiment", "all", "--run", str(run)]) == 0
    return run


def _hide_images(table: Path) -> None:
    """Replaces the URIs of the images with one where there is none."""
    shards = pq.ParquetFile(table)
    parts = [shards.read_row_group(number) for number in range(shards.num_row_groups)]
    place, field = parts[0].schema.get_field_index("uri"), parts[0].schema.field("uri")
    gone = [pa.array(["/nowhere"] * len(part), field.type) for part in parts]
    write_list(table, [p.set_column(place, field, uri) for p, uri in zip(parts, gone, strict=True)])


def metrics(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "scenes" / "tiny" / "metrics.json").read_text())
    return found


def test_every_experiment_leaves_a_table_and_a_figure(made: Path) -> None:
    for name in EXPERIMENTS:
        for ending in EXPERIMENT_FILES:
            assert (made / "experiments" / f"{name}.{ending}").stat().st_size > 100, name
        assert rows(made, name) or name == "plug-in"  # which was given no other method's scores
        figure = (made / "experiments" / f"{name}.svg").read_text()
        assert "<text" in figure  # labels, readable by search and by machines
    index = (made / "experiments" / "index.md").read_text()
    assert all(f"]({name}.png)" in index for name in EXPERIMENTS)


def test_variants_that_are_in_the_report_have_the_same_map(made: Path) -> None:
    found = metrics(made)
    debias = {(row["compound"], row["debias"]): row for row in rows(made, "debias")}
    for cells, name in (
        (("no", "no debias"), "zsclip"),
        (("no", "full"), "debiased"),
        (("yes", "full"), "sparc"),
    ):
        assert float(debias[cells]["mAP (%)"]) == pytest.approx(found[name]["mAP"], abs=1e-6)
    fusion = {(row["strategy"], row["merge"]): row for row in rows(made, "rank-fusion")}
    assert len(fusion) == 44
    assert float(fusion["maxVariance", "yes"]["mAP (%)"]) == pytest.approx(
        found["sparc"]["mAP"], abs=1e-6
    )
    assert fusion["singleton", "no"]["mAP (%)"] == fusion["singleton", "yes"]["mAP (%)"]


def test_remarks_say_what_the_run_lacks_of_the_paper(made: Path) -> None:
    text = (made / "experiments" / "debias.md").read_text()
    assert "lacks COCO, VOC, NUSWIDE" in text
    assert "| yes | full |" in text
    assert "68.3 | 89.2 | 47.2" in text


def test_prompts_of_the_run_scored_again_have_their_stored_scores(made: Path) -> None:
    with ExperimentSession(open_run(str(made)), Options(), []) as session:
        ((_, unit),) = session.units.items()
        stored = len(unit.data.bank.compound)
        views, failures = views_with([unit], unit.data.bank.compound)
        assert not failures
        ((ids, scores),) = resolved(views["tiny"]).slices(unit.shards, 0, 100)
    assert len(ids) == len(scores) > 0
    again = scores.compound[:, stored:]
    np.testing.assert_allclose(again, scores.compound[:, :stored], atol=1e-6)


def test_other_weights_are_not_used_with_stored_embeddings(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for marker in (finished / "run" / "scenes" / "tiny" / "done").iterdir():
        edit_json(marker, lambda found: found["scoring"].update(weights_sha256="0" * 64))
    assert main(["experiment", "templates", "--run", str(finished / "run")]) == 0
    assert "scored with other weights" in capsys.readouterr().out
    found = {row["template"] for row in rows(finished / "run", "templates") if row["mAP (%)"]}
    assert found == {"none", "A and B"}  # the rows that need only stored scores


def stored_scores(run: Path, bank: PromptBank) -> tuple[list[str], Scores]:
    """The scores of the only unit; singletons of the classes alone, as other methods have them."""
    table = pq.read_table(run / "scenes" / "tiny" / "scores")
    singleton, auxiliary, compound = (
        np.array(table[name].to_pylist()) for name in ("singleton", "auxiliary", "compound")
    )
    scores = Scores(singleton[:, : len(bank.classes)], auxiliary, compound)
    return table["image_id"].to_pylist(), scores


def sparc_map(scores: Scores, bank: PromptBank, labels: dict[str, list[str]]) -> float:
    """The mAP of SPARC, computed in one piece; the labels are in the order of the images."""
    mentions = bank.mentions[: len(bank.classes)]
    final = fit_sparc(lambda: [scores], mentions, Method()).final(scores)[1]
    truth = np.array([[name in found for name in bank.classes] for found in labels.values()])
    aps = [value for value in ap(final.astype(np.float32), truth) if value is not None]
    return float(np.mean(aps))


def test_plugging_in_the_runs_own_singleton_equals_sparc_on_it(
    made: Path,
    tmp_path: Path,
    truth: dict[str, list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    bank = PromptBank.from_table(pq.read_table(made / "scenes" / "prompts.parquet"))
    assert bank.background  # which another method has no scores of
    ids, whole = stored_scores(made, bank)
    scores = whole.singleton
    command = ["experiment", "plug-in", "--run", str(made), "--scores"]
    np.savez(tmp_path / "whole.npz", image_ids=ids, scores=scores)
    assert main([*command, str(tmp_path / "whole.npz")]) == 0
    row = rows(made, "plug-in")[0]
    assert float(row["alone (%)"]) == pytest.approx(metrics(made)["zsclip"]["mAP"], abs=1e-6)
    expected = sparc_map(whole, bank, {name: truth[name] for name in ids})
    assert float(row["with SPARC (%)"]) == pytest.approx(expected, abs=1e-6)
    np.savez(tmp_path / "part.npz", image_ids=ids[:50], scores=np.exp(scores[:50]))
    assert main([*command, str(tmp_path / "part.npz"), "--method", "tagclip"]) == 0
    assert "| TagCLIP | 50 of 60 |" in capsys.readouterr().out
    np.savez(tmp_path / "none.npz", image_ids=[f"x{i}" for i in ids], scores=scores)
    assert main([*command, str(tmp_path / "none.npz")]) == 2
    assert "none of the run's images" in capsys.readouterr().err


def test_plug_in_scores_of_images_in_every_part_of_the_list_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (shards, images, layout):
        monkeypatch.setattr(module, "SEGMENT", 2)
    run, scores = tmp_path / "run", tmp_path / "scores.npz"
    assert not simulate(str(run), Settings(images=100, classes=5, shard_size=20)).failures
    assert len(list((run / "simulation" / "images").glob("*.parquet"))) == 2  # beside the first
    drawn = np.random.default_rng(0).normal(size=(100, 5))
    np.savez(scores, image_ids=[f"{number:06d}" for number in range(100)], scores=drawn)
    assert main(["experiment", "plug-in", "--run", str(run), "--scores", str(scores)]) == 0
    assert "| 100 of 100 |" in capsys.readouterr().out


def test_a_class_and_a_unit_can_be_selected(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["experiment", "histograms", "--run", str(made)]
    assert main([*command, "--class", "pizza", "--dataset", "scenes"]) == 0
    assert "'pizza'" in (made / "experiments" / "histograms.md").read_text()
    assert main([*command, "--class", "unicorn"]) == 2
    assert "no class 'unicorn'" in capsys.readouterr().err
    assert main([*command, "--backbone", "RN50"]) == 2
    assert "choose one of: scenes × tiny." in capsys.readouterr().err
    assert main(["experiment", "debias", "--run", str(made), "--class", "pizza"]) == 2
    assert "--class does not apply to debias" in capsys.readouterr().err


def test_one_pass_serves_all_strategies(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "rank-fusion", "--run", str(made)]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "60/60 images" in line]
    assert [line.split("  ")[1] for line in lines] == [
        *("variant moments", "variant products", "variant positives", "variant reached"),
    ]


def test_a_run_without_a_labelled_unit_fails(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finished / "run" / "scenes" / "tiny" / "metrics.json").unlink()
    assert main(["experiment", "main", "--run", str(finished / "run")]) == 2
    assert "is finished and has labels" in capsys.readouterr().err
    assert main(["experiment", "main", "--run", str(finished / "nowhere")]) == 2
    assert "There is no run at" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--run", "--scores"])
def test_a_url_with_a_key_fails_without_repeating_the_key(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["experiment", "plug-in", "--run", "here", option]
    assert main([*command, "https://host/x.npz?Signature=hidden"]) == 2
    message = capsys.readouterr().err
    assert option in message
    assert "hidden" not in message
