"""Whole runs on a real Ray, over real JPEGs, with the real small model."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray

from sparc_dist import storage
from sparc_dist.backbones.models import Backbone, Scorer
from sparc_dist.config import load_config
from sparc_dist.core import Method, Scores, fit_fusions
from sparc_dist.errors import UserError
from sparc_dist.images.decoding import decode
from sparc_dist.pipeline.embed import TextTower, embed_prompts
from sparc_dist.planning import Scorers
from sparc_dist.prompts import PromptBank
from sparc_dist.report import write_report
from sparc_dist.runner import run
from sparc_dist.runs import STAGES, Results
from sparc_dist.runs.decisions import read_decisions
from sparc_dist.runs.labeler_file import read_labeler
from sparc_dist.runs.storing import matrix
from tests.support.bomb import bomb
from tests.support.cases import ap
from tests.support.waiting import until

WriteConfig = Callable[..., str]


def hashes(folder: Path) -> dict[str, str]:
    """The final tables' bytes."""
    files = sorted((folder / "scenes" / "tiny" / "final").iterdir())
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def go(path: str) -> Results:
    outcome = run(load_config(path))
    write_report(outcome.layout.root)
    return outcome


@pytest.fixture
def manifest(tmp_path: Path, scenes: Path, truth: dict[str, list[str]]) -> Path:
    """The scenes with their labels, and among them six files that cannot be read."""
    bad = {
        "empty.jpg": b"",
        "text.jpg": b"no image",
        "truncated.jpg": next(iter(sorted(scenes.iterdir()))).read_bytes()[:900],
        "bomb.png": bomb(),
        "noise.png": bytes(range(256)),
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    rows = [f"{scenes / name},{name},{';'.join(labels)}" for name, labels in truth.items()]
    for place, name in enumerate([*bad, "missing.jpg"]):
        rows.insert(place * 7, f"{name},{name},")
    table = tmp_path / "manifest.csv"
    table.write_text("uri,image_id,labels\n" + "\n".join(rows) + "\n")
    return table


@pytest.mark.usefixtures("cluster")
def test_a_run_leaves_what_the_design_says(
    write_config: WriteConfig, manifest: Path, tmp_path: Path, truth: dict[str, list[str]]
) -> None:
    outcome = go(write_config({"kind": "manifest", "images": str(manifest)}, max_error_share=0.1))
    assert not outcome.failures
    root = tmp_path / "run"
    unit = root / "scenes" / "tiny"
    metrics = storage.read_json(str(unit / "metrics.json"))
    assert metrics["images"] == 60
    assert metrics["errors"]["images"] == 6
    assert metrics["errors"]["share"] == 6 / 66
    assert metrics["errors"]["reasons"]["not an image in a known format"] == 2
    assert metrics["errors"]["reasons"]["declares … × … pixels, more than …"] == 1

    errors = pq.read_table(unit / "errors").to_pylist()
    reasons = {row["image_id"]: row["error"] for row in errors}
    assert reasons == {
        "empty.jpg": "the file is empty",
        "text.jpg": "not an image in a known format",
        "truncated.jpg": reasons["truncated.jpg"],
        "bomb.png": "declares 40000 × 40000 pixels, more than 200,000,000",
        "noise.png": "not an image in a known format",
        "missing.jpg": "there is no such file",
    }
    assert "cannot be decoded: image file is truncated" in reasons["truncated.jpg"]

    bank = PromptBank.from_table(storage.read_table(str(root / "scenes" / "prompts.parquet")))
    classes, columns, compounds = len(bank.classes), len(bank.columns), len(bank.compound)
    stored = pq.read_table(unit / "scores")
    assert stored.num_rows == 60
    assert stored.schema.names == ["image_id", "singleton", "auxiliary", "compound", "embedding"]
    _scores_are_the_models(stored, bank, manifest)
    scores = Scores(
        matrix(stored["singleton"], columns),
        matrix(stored["auxiliary"], columns),
        matrix(stored["compound"], compounds),
    )

    final = pq.read_table(unit / "final")
    for table in (stored, final):
        for name in ("classes", "background"):
            named = json.loads(table.schema.metadata[name.encode()])
            assert named == [*getattr(bank, name)]
    assert final["image_id"].to_pylist() == stored["image_id"].to_pylist()
    expected = fit_fusions(lambda: [scores], bank.mentions, classes, Method()).final(scores)
    labels = np.array(
        [[name in truth[i] for name in bank.classes] for i in final["image_id"].to_pylist()]
    )
    for name in expected.methods:
        found = matrix(final[name], classes)
        np.testing.assert_allclose(found, expected.methods[name], atol=2e-6)
        assert list(metrics[name]["AP"].values()) == ap(found, labels)

    fusions = read_labeler(str(unit / "labeler.safetensors")).fusions
    one = fusions.final(scores[3:4])
    for name in expected.methods:
        np.testing.assert_allclose(one.methods[name], expected.methods[name][3:4], atol=2e-6)
    assert metrics["primary"] == "duo"
    decisions, primary = read_decisions(str(unit / "decisions.json"))
    probability, present = decisions[primary].judge(*expected.columns(primary))
    labels_table = pq.read_table(unit / "labels")
    np.testing.assert_allclose(labels_table["probability"], probability.ravel(), atol=1e-5)
    assert labels_table["present"].to_pylist() == present.ravel().tolist()
    assert set(metrics["stages"]) == {"embedding", "scoring", *STAGES}
    embedding = metrics["stages"].pop("embedding")
    assert embedding["texts"] == 8 * columns + compounds
    assert embedding["seconds"] > 0
    for stage in metrics["stages"].values():
        assert stage["seconds"] > 0
        assert stage["images_per_second"] > 0
    _report_is_right(root, metrics)


def _scores_are_the_models(stored: Any, bank: PromptBank, manifest: Path) -> None:
    """What Ray stored is what the model says of the same pixels in this process."""
    backbone = Backbone(load_config(str(manifest.parent / "config.yaml")).backbones[0])
    scorer = Scorer(backbone, backbone.embed(bank))
    uris = {line.split(",")[1]: line.split(",")[0] for line in manifest.read_text().splitlines()}
    ids = stored["image_id"].to_pylist()[:8]
    pixels = np.stack([decode(Path(uris[i]).read_bytes(), backbone.image_size) for i in ids])
    scores, embedding = scorer.score(pixels, 64)
    expected = {
        "singleton": scores.singleton,
        "auxiliary": scores.auxiliary,
        "compound": scores.compound,
        "embedding": embedding,
    }
    for name, rows in expected.items():
        found = matrix(stored[name], rows.shape[1])[:8]
        np.testing.assert_allclose(found, rows, atol=1e-5)


def _report_is_right(root: Path, metrics: dict[str, Any]) -> None:
    table = (root / "report" / "tables.md").read_text()
    assert f"| scenes | SPARC | {metrics['sparc']['mAP']:.1f} |" in table
    assert "scenes × tiny: 6 of 66 images could not be read: 2 × not an image in a kn" in table
    assert "1 × there is no such file" in table
    lines = (root / "report" / "tables.csv").read_text().splitlines()
    assert lines[0] == "dataset,backbone,method,mAP"
    assert f"scenes,tiny,zsclip,{metrics['zsclip']['mAP']!r}" in lines
    assert f"scenes,average,sparc,{metrics['sparc']['mAP']!r}" in lines
    page = (root / "report" / "index.html").read_text()
    assert '<bdi class="name">scenes</bdi> × <bdi class="name">tiny</bdi>' in page
    assert "6 more could not be read (9.1 % of the images)" in page
    record = storage.read_json(str(root / "run.json"))
    assert record["units"][0]["status"] == "done"
    assert record["units"][0]["weights_sha256"] == metrics["weights_sha256"]
    assert {"ray", "torch", "open_clip_torch"} <= set(record["versions"])


def test_too_many_bad_images_fail_the_unit_after_all_is_saved(
    write_config: WriteConfig, manifest: Path, tmp_path: Path
) -> None:
    dataset = {"kind": "manifest", "images": str(manifest), "classes": ["cat", "dog", "car"]}
    outcome = go(write_config(dataset))
    told = outcome.failures["scenes", "tiny"]
    assert told.startswith("6 of 66 images could not be read (2 × not an image in a known format)")
    assert "more than max_error_share (0.05) allows" in told
    assert len(hashes(tmp_path / "run")) == 5
    assert "| scenes | SPARC | – |" not in (tmp_path / "run" / "report" / "tables.md").read_text()
    record = storage.read_json(str(tmp_path / "run" / "run.json"))
    assert record["units"][0]["status"] == "failed"
    page = tmp_path / "run" / "report" / "scenes-tiny" / "index.html"
    assert "6 of 66 images (9.1 %) could not be read" in page.read_text()
    assert "(5.0 %), so the unit counts as failed" in page.read_text()
    # Nothing is done again, but who looked into them may let the errors pass.
    assert go(write_config(dataset)).failures
    outcome = go(write_config(dataset, max_error_share=0.1))
    assert outcome.nothing_to_do
    assert not outcome.failures
    record = storage.read_json(str(tmp_path / "run" / "run.json"))
    assert record["units"][0]["status"] == "done"
    assert "(10.0 %), so the unit counts as done" in page.read_text()


def test_without_labels_it_works_and_says_that_there_is_no_map(
    write_config: WriteConfig, tmp_path: Path
) -> None:
    outcome = go(write_config())
    metrics = outcome.metrics["scenes", "tiny"]
    assert metrics["sparc"] == {"mAP": None, "AP": {}}
    assert "average_precision" not in metrics["stages"]
    assert "there is no mAP" in (tmp_path / "run" / "report" / "tables.md").read_text()
    assert pq.read_table(tmp_path / "run" / "scenes" / "tiny" / "final").num_rows == 60


@pytest.mark.usefixtures("cluster")  # whose machines may have files that this one has not
def test_a_missing_folder_fails_its_units_and_may_be_corrected(
    write_config: WriteConfig, tmp_path: Path
) -> None:
    outcome = go(write_config({"images": str(tmp_path / "tpyo")}))
    assert "There is no folder" in outcome.failures["scenes", "tiny"]
    (tmp_path / "small").mkdir()
    outcome = go(write_config({"images": str(tmp_path / "small")}))
    assert "contains no images" in outcome.failures["scenes", "tiny"]


def test_an_edited_manifest_is_another_run(
    write_config: WriteConfig, scenes: Path, tmp_path: Path
) -> None:
    names = sorted(path.name for path in scenes.iterdir())[:4]
    table = tmp_path / "m.csv"
    table.write_text("uri\n" + "\n".join(str(scenes / name) for name in names[:3]))
    few: dict[str, Any] = {"kind": "manifest", "images": str(table), "classes": ["cat", "dog"]}
    few["prompts"] = {"source": "none"}
    outcome = go(write_config(few))
    final = pq.read_table(tmp_path / "run" / "scenes" / "tiny" / "final")
    # Without compound prompts SPARC is the debiased singleton.
    assert final["sparc"].to_pylist() == final["debiased"].to_pylist()
    assert outcome.metrics["scenes", "tiny"]["images"] == 3
    table.write_text(table.read_text() + f"\n{scenes / names[3]}\n")
    with pytest.raises(
        UserError, match=r"another config \(images: 3 → 4: 1 new photo since the run\)"
    ):
        go(write_config(few))


def test_a_class_without_positives_counts_as_zero_on_request(
    write_config: WriteConfig, scenes: Path, tmp_path: Path
) -> None:
    names = sorted(path.name for path in scenes.iterdir())[:6]
    rows = [f"{scenes / name},{'cat' if i % 2 else ''}" for i, name in enumerate(names)]
    table = tmp_path / "m.csv"
    table.write_text("uri,labels\n" + "\n".join(rows) + "\n")
    few = {"kind": "manifest", "images": str(table), "classes": ["cat", "dog"]}
    outcome = go(write_config(few, empty_class="zero"))
    sparc = outcome.metrics["scenes", "tiny"]["sparc"]
    assert sparc["AP"]["dog"] is None
    assert sparc["mAP"] == sparc["AP"]["cat"] / 2


@pytest.mark.usefixtures("cluster")
def test_a_run_without_progress_ends_with_a_sentence(write_config: WriteConfig) -> None:
    outcome = go(write_config(resources={"scorers": 1, "no_progress_seconds": 1}))
    assert "resources.no_progress_seconds" in outcome.failures["scenes", "tiny"]


def test_a_reduce_that_fails_leaves_the_unit_undone(
    write_config: WriteConfig, tmp_path: Path
) -> None:
    path = write_config({"classes": ["cat", "dog", "car"]})
    go(path)
    before = hashes(tmp_path / "run")
    unit = tmp_path / "run" / "scenes" / "tiny"
    (unit / "metrics.json").unlink()
    shutil.rmtree(unit / "final")
    (unit / "final").write_text("no folder, so nothing can be written into it")
    outcome = go(path)
    assert ("scenes", "tiny") in outcome.failures
    assert not (unit / "metrics.json").exists()
    (unit / "final").unlink()
    assert not go(path).failures
    assert hashes(tmp_path / "run") == before


def test_one_units_failure_does_not_stop_the_others(
    write_config: WriteConfig, tmp_path: Path
) -> None:
    (tmp_path / "broken.pt").write_bytes(b"no weights")
    broken = {"name": "broken", "model": "RN50-quickgelu", "weights": "./broken.pt"}
    strange = {"name": "strange", "model": "RN51", "weights": "openai"}
    strange["model"] += "-quickgelu"
    tiny = {"name": "tiny", "model": "sparc-tiny"}
    outcome = go(write_config(backbones=[broken, strange, tiny]))
    assert set(outcome.metrics) == {("scenes", "tiny")}
    assert "the weights" in outcome.failures["scenes", "broken"]
    assert "set `weights` to a checkpoint" in outcome.failures["scenes", "broken"]
    assert "has no model RN51" in outcome.failures["scenes", "strange"]
    assert "scenes × broken failed:" in (tmp_path / "run" / "report" / "tables.md").read_text()
    record = storage.read_json(str(tmp_path / "run" / "run.json"))
    assert [unit["status"] for unit in record["units"]] == ["failed", "failed", "done"]


def test_no_readable_image_is_said_in_a_sentence(write_config: WriteConfig, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.jpg").write_bytes(b"x")
    outcome = go(write_config({"images": str(tmp_path / "bad")}))
    assert "None of the 1 images of scenes could be read" in outcome.failures["scenes", "tiny"]


@pytest.mark.usefixtures("cluster")
def test_a_cluster_that_is_busy_for_good_is_a_sentence(write_config: WriteConfig) -> None:
    config = load_config(write_config())
    cpus = ray.cluster_resources()["CPU"]
    # What the test before has left may still be on its way out.
    assert until(lambda: ray.available_resources().get("CPU") == cpus, 60)
    block = ray.remote(num_cpus=cpus)(lambda: time.sleep(600)).remote()
    towers = [TextTower(config.backbones[0], "")]
    try:
        with pytest.raises(UserError, match=r"Loading tiny.* took longer than .* \(2 s\); the cl"):
            embed_prompts(towers, PromptBank(("cat",), ()), Scorers(1, 0, 1), 2)
    finally:
        ray.cancel(block, force=True)


@pytest.mark.usefixtures("cluster")
def test_text_embeddings_stay_in_the_object_store(
    write_config: WriteConfig,
) -> None:
    config = load_config(write_config())
    bank = PromptBank(("cat", "dog"), ())
    prompts = embed_prompts([TextTower(config.backbones[0], "")], bank, Scorers(1, 0, 1), 300)
    assert isinstance(prompts.texts, ray.ObjectRef)
    texts, _ = ray.get(prompts.texts)["tiny"]
    assert texts.singleton.shape == texts.auxiliary.shape
    assert texts.compound.shape == (0, texts.singleton.shape[1])
