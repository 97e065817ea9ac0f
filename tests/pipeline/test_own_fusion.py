"""A fusion of one's own: defined here, added to the dictionary, and used by all that a run does.

It builds on duo and needs one more pass, over the embeddings of images. On Ray, workers get it with
the work that they do: classes are pickled by the name of their module.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from numpy.typing import NDArray

from sparc_dist.cli import main
from sparc_dist.config import load_config
from sparc_dist.core import FUSIONS, Duo, Floats, Fusion, Given, Method, Scores, State, fit_fusions
from sparc_dist.core.fusion import NO_BASE, Arrays, Facts, Passes, Totals, without_rival
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.pipeline.verify import verify
from sparc_dist.report import write_report
from sparc_dist.report.exhibits import build_exhibits
from sparc_dist.runner import run
from sparc_dist.runs import Results, RunLayout, read_record
from sparc_dist.runs.labeler_file import read_labeler
from sparc_dist.runs.run import open_unit
from sparc_dist.runs.status import status
from sparc_dist.runs.storing import matrix
from sparc_dist.serving import Labeler
from tests.conftest import FEW
from tests.support.command import contents

SHARE = 0.5
NAMES = ["zsclip", "debiased", "sparc", "duo", "nearby"]
PARTS = ["sparc_background", "duo_total", "nearby_total"]


@dataclass(frozen=True)
class Centres(State):
    """Sums of embeddings, each as often as its image scores high for a column: (N + B, d)."""

    count: int
    sums: Floats

    @classmethod
    def of(cls, total: NDArray[np.floating], embedding: NDArray[np.floating] | None) -> Centres:
        assert embedding is not None
        high = (total > 1).astype(np.float64)
        return cls(len(total), high.T @ embedding.astype(np.float64))


@dataclass(frozen=True)
class Nearby(Fusion):
    """Duo, and how close an image is to the mean of those that score high for a class."""

    name = "nearby"
    title = "Nearby"
    part = "total"
    builds_on = ("duo",)
    needs_embeddings = True
    passes: ClassVar[Passes] = (("nearby_statistics", Centres),)
    totals = ("duo", "nearby")
    prefix = "centres"
    weight_names = Duo.weight_names

    duo: Fusion
    centres: Floats
    share: float

    @classmethod
    def gather(cls, given: Given) -> Callable[[Scores], State]:
        duo = given.base["duo"]
        return lambda scores: Centres.of(duo.final(scores)[0], scores.embedding)

    @classmethod
    def fit(cls, given: Given) -> Self:
        (state,) = given.states
        lengths = np.linalg.norm(state.sums, axis=1, keepdims=True)
        centres = state.sums / np.maximum(lengths, 1e-9)
        return cls(given.mentions, given.base["duo"].notes, given.base["duo"], centres, SHARE)

    def final(self, scores: Scores, base: Mapping[str, Totals] = NO_BASE) -> Totals:
        assert scores.embedding is not None
        total = base["duo"][0] + self.share * (scores.embedding @ self.centres.T)
        return total, without_rival(total, 0.2)

    def debiased(self, scores: Scores) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        return self.duo.debiased(scores)

    def prompt_weights(self, compound: NDArray[np.floating], column: int) -> Floats:
        return self.duo.prompt_weights(compound, column)

    def column_weights(self, column: int) -> Floats:
        return self.duo.column_weights(column)

    def arrays(self) -> Arrays:
        return {"unit": self.centres}

    def facts(self) -> Facts:
        return {"share": self.share}

    @classmethod
    def restored(cls, given: Given, arrays: Arrays, facts: Facts) -> Self:
        own = (given.base["duo"], arrays["unit"], facts["share"])
        return cls(given.mentions, facts["notes"], *own)


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    FUSIONS[Nearby.name] = Nearby
    yield
    del FUSIONS[Nearby.name]


def write_config(folder: Path, manifest: Path, **changes: Any) -> str:
    dataset = {"name": "scenes", "kind": "manifest", "images": str(manifest), "classes": FEW}
    config = {
        "output": "run",
        "shard_size": 16,
        "datasets": [dataset],
        "backbones": [{"name": name, "model": "sparc-tiny"} for name in ("one", "two")],
        "fusions": ["sparc", "nearby"],
        "method": {"primary": "nearby"},
        "resources": {"scorers": 1, "gpus_per_scorer": 0},
        **changes,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return str(folder / "config.yaml")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, original: Path) -> Path:
    """A finished run in this process, with two backbones and their ensemble."""
    folder = tmp_path_factory.mktemp("own")
    with using(InProcess()):
        outcome = run(load_config(write_config(folder, original / "manifest.csv")))
        assert not outcome.failures
        write_report(outcome.layout.root)
    return folder / "run"


def unit_of(root: Path, name: str) -> Path:
    return root / "scenes" / name


def metrics_of(unit: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((unit / "metrics.json").read_text())
    return found


def fitted_again(unit: Path) -> tuple[Scores, Any]:
    """The stored scores of a unit, and what a fit on all of them at once gives."""
    stored = pq.read_table(unit / "scores")
    labeler = read_labeler(str(unit / "labeler.safetensors"))
    kinds = ("singleton", "auxiliary", "compound", "embedding")
    parts = (matrix(stored[name], len(stored[name][0])) for name in kinds)
    scores, given = Scores(*parts), labeler.fusions.given
    method = Method(fusions=("sparc", "nearby"), primary="nearby")
    return scores, fit_fusions(lambda: [scores], given.mentions, given.classes, method)


def test_final_scores_decisions_and_labels(made: Path) -> None:
    unit = unit_of(made, "one")
    assert Method(fusions=("nearby",)).fusions == ("duo", "nearby")
    final = pq.read_table(unit / "final")
    assert final.column_names == ["image_id", *NAMES, *PARTS]
    scores, fusions = fitted_again(unit)
    assert scores.embedding is not None
    expected = fusions.final(scores).by_name
    for name in (*NAMES, *PARTS):
        found = matrix(final[name], expected[name].shape[1])
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=2e-6)
    gap = expected["nearby_total"] - expected["duo_total"]
    np.testing.assert_allclose(
        gap, SHARE * scores.embedding @ fusions["nearby"].centres.T, atol=1e-5
    )
    rules = json.loads((unit / "decisions.json").read_text())
    assert [name for name in rules if name in FUSIONS] == ["sparc", "duo", "nearby"]
    assert rules["primary"] == "nearby"
    metrics = metrics_of(unit)
    assert metrics["primary"] == "nearby"
    assert metrics["nearby"]["mAP"] > 50
    assert metrics["nearby"]["decisions"]["micro_f1"] > 30
    assert (unit / "reduce" / "nearby_statistics" / "00.npz").exists()
    assert "nearby_statistics" in metrics["stages"]
    labels = open_unit(str(made), backbone="one").labels()
    present = np.concatenate([shard.present for shard in labels])
    assert 0 < present.sum() < present.size


def test_the_report_shows_it_and_explains_with_it(made: Path) -> None:
    page = (made / "report" / "index.html").read_text()
    assert "<td>Nearby</td>" in page
    unit_page = (made / "report" / "scenes-one" / "index.html").read_text()
    assert "Nearby decides which classes an image contains" in unit_page
    layout = RunLayout(str(made))
    with using(InProcess()):
        shown = build_exhibits(Results.read(layout, read_record(layout)), 600)["scenes", "one"]
    explained = [one for image in shown.images.values() for one in image.classes if one.prompts]
    assert explained
    for one in explained:
        assert one.own + one.rest + sum(part.added for part in one.prompts) == pytest.approx(
            one.score, abs=1e-5
        )
    (first, *_) = status(str(made))
    assert first.stage.startswith("done, mAP")
    assert first.stage.endswith("Nearby")
    with using(InProcess()):
        assert not verify(str(made)).faults


def test_its_labeler_answers_as_the_run_did(made: Path) -> None:
    labeler = Labeler.load(made, backbone="one")
    assert labeler.method == "nearby"
    (first, *_) = open_unit(str(made), backbone="one").labels()
    answers = labeler(first.uris)
    for row, answer in enumerate(answers):
        assert [*answer.scores.values()] == pytest.approx(first.scores[row].tolist(), abs=1e-5)
        assert {*answer.labels} == {*answer.because}
    assert any(reasons for answer in answers for reasons in answer.because.values())
    both = Labeler.load(made, backbone="ensemble")
    (first, *_) = open_unit(str(made), backbone="ensemble").labels()
    answer = both(first.uris[0])
    assert [*answer.scores.values()] == pytest.approx(first.scores[0].tolist(), abs=1e-5)


def test_the_ensemble_is_the_mean_of_its_scores(made: Path) -> None:
    found, one = (pq.read_table(unit_of(made, name) / "final") for name in ("ensemble", "one"))
    assert found.column_names == one.column_names
    for name in ("nearby", "nearby_total"):
        x = np.array(one[name].to_pylist())
        z = (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)
        # Both backbones are the same model.
        np.testing.assert_allclose(found[name].to_pylist(), z, atol=3e-6)
    assert metrics_of(unit_of(made, "ensemble"))["primary"] == "nearby"


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_ray_gives_the_same_bytes(made: Path, original: Path, tmp_path: Path) -> None:
    assert not run(load_config(write_config(tmp_path, original / "manifest.csv"))).failures
    for name in ("one", "two", "ensemble"):
        ours, rays = (unit_of(root, name) for root in (made, tmp_path / "run"))
        assert contents(ours) == contents(rays)
    write_report(str(tmp_path / "run"))
    assert "<td>Nearby</td>" in (tmp_path / "run" / "report" / "index.html").read_text()


@pytest.mark.parametrize("executor", ["light", pytest.param("cluster", marks=pytest.mark.ray)])
def test_it_is_applied_to_images(
    made: Path, original: Path, tmp_path: Path, executor: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(executor)
    unit, out = unit_of(made, "one"), tmp_path / "out"
    labeler = str(unit / "labeler.safetensors")
    assert main(["apply", labeler, str(original / "manifest.csv"), "--out", str(out)]) == 0
    applied = out / "images" / "one"
    for folder in ("final", "labels"):
        for path in (unit / folder).iterdir():
            assert (applied / folder / path.name).read_bytes() == path.read_bytes()


def test_without_embeddings_what_it_builds_on_decides(original: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, original / "manifest.csv", store="scores")
    with using(InProcess()):
        assert not run(load_config(config)).failures
    for name in ("one", "ensemble"):
        found = metrics_of(unit_of(tmp_path / "run", name))
        assert found["primary"] == "duo"
        assert "nearby" not in found
    assert metrics_of(unit_of(tmp_path / "run", "one"))["notes"][-1] == (
        "Nearby is left out, because it needs the embeddings of images, which the run does not "
        "store; duo decides."
    )


def test_a_process_that_does_not_know_it_says_so(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(unit_of(made, "one") / "labeler.safetensors", tmp_path)
    monkeypatch.delitem(FUSIONS, "nearby")
    with pytest.raises(UserError, match="has the fusion nearby, which is not known here; import"):
        read_labeler(str(tmp_path / "labeler.safetensors"))
    with pytest.raises(ValueError, match="list one or more of sparc, duo"):
        Method(fusions=("nearby",))
