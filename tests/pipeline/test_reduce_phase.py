"""The reduce on Ray against the golden reference, and its fixed way of merging."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray

from sparc_dist.core import FUSIONS, Kinds, Method, Scores
from sparc_dist.datasets import images_table, write_images
from sparc_dist.errors import UserError
from sparc_dist.external_scores import Matrices, read_npz
from sparc_dist.pipeline.executor import get, using
from sparc_dist.pipeline.in_process import InProcess, resolved
from sparc_dist.pipeline.passes import Passes
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.runs import STAGES, Provenance, RunLayout, UnitShards, reduce_checkpoints
from sparc_dist.runs.shards import scores_table, write_shard
from tests.support.cases import golden_answer, write_three_classes

GOLDEN = Path(__file__).parents[1] / "golden"


def golden_phase(folder: Path, method: Method, cuts: list[int]) -> ReducePhase:
    """The golden scores as a unit's shards, cut after these images."""
    matrices = read_npz(str(GOLDEN / "scores.npz"), str(GOLDEN / "prompts.json"))
    return phase_of(matrices, folder, method, cuts)


def phase_of(matrices: Matrices, folder: Path, method: Method, cuts: list[int]) -> ReducePhase:
    """Scores as a unit's shards, cut after these images."""
    assert matrices.labels is not None
    data = RunLayout(str(folder)).dataset("golden")
    unit = data.unit("made-up")
    labels = [np.flatnonzero(row).tolist() for row in matrices.labels]
    edges = [0, *cuts, len(matrices.ids)]
    sizes = []
    table = images_table(matrices.ids, matrices.ids, labels)
    write_images([table], data, edges[1])
    for shard, (start, stop) in enumerate(itertools.pairwise(edges)):
        part: Scores = matrices.scores[start:stop]
        embedding = np.zeros((len(part), 1), dtype=np.float32)
        ids = list(matrices.ids[start:stop])
        table = scores_table(ids, part, embedding, matrices.bank.names)
        by = Provenance("", matrices.bank.sha256, "", "cpu")
        write_shard(unit, shard, table, [], by).write(unit)
        sizes.append(len(part))
    bank = matrices.bank
    widths = (len(bank.classes), len(bank.compound), len(bank.background))
    shards = UnitShards(data, unit, *widths)
    return ReducePhase(shards, bank, method, "duo", sizes, "golden", limit=300)


def reduced(phase: ReducePhase, watch: Seen) -> dict[str, Any]:
    """Runs all passes; returns the metrics."""
    statistics = phase.score(phase.fit(watch), watch)
    assert isinstance(statistics, ray.ObjectRef)
    decisions, counts = phase.decide(statistics, watch)
    return phase.evaluate(statistics, counts, phase.label(decisions, watch), "skip")


class Seen:
    """Counts the images of each pass."""

    def __init__(self) -> None:
        self.images: dict[str, int] = {}

    def start(self, stage: str, images: int, done: int = 0) -> None:
        self.images[stage] = done

    def advance(self, stage: str, images: int) -> None:
        self.images[stage] += images


@pytest.mark.usefixtures("cluster")
def test_the_golden_reference_through_shards_on_ray(tmp_path: Path) -> None:
    expected = json.loads((GOLDEN / "expected.json").read_text())["expected"]
    phase = golden_phase(tmp_path, Method(), [150, 300, 450, 600, 750])
    watch = Seen()
    summary = reduced(phase, watch)
    duo = json.loads((GOLDEN / "duo_expected.json").read_text())["duo"]
    for name, column in {**expected, "duo": duo}.items():
        assert summary[name]["mAP"] == pytest.approx(column["mAP"], abs=1e-6)
        for label, value in column["AP"].items():
            assert summary[name]["AP"][label] == pytest.approx(value, abs=1e-6)
    assert watch.images == dict.fromkeys(STAGES, 800)
    rules = json.loads((GOLDEN / "decisions_expected.json").read_text())
    for name in ("sparc", "duo"):
        found, rule = summary[name]["decisions"], rules[name]["label_free"]
        expected_f1 = rule["percent"]["micro_F1"] if "percent" in rule else rule["micro_f1"]
        assert found["micro_f1"] == pytest.approx(expected_f1, abs=0.1)
        assert found["oracle_micro_f1"] == pytest.approx(rules[name]["oracle"]["micro_f1"], abs=0.1)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("cuts", [[400], [267, 534], [115, 230, 345, 460, 575, 690]])
def test_three_classes_with_background_equal_the_golden_ap_on_ray(
    tmp_path: Path, cuts: list[int]
) -> None:
    matrices = read_npz(*map(str, write_three_classes(tmp_path)))
    summary = reduced(phase_of(matrices, tmp_path, Method(), cuts), Seen())
    expected = golden_answer("duo")["three classes"]
    assert summary["duo"]["mAP"] == pytest.approx(expected["mAP"], abs=1e-6)
    assert summary["duo"]["AP"] == pytest.approx(expected["AP"], abs=1e-6)
    rules = json.loads((tmp_path / "golden" / "made-up" / "decisions.json").read_text())
    assert list(rules["duo"]["classes"]) == expected["classes"]
    final = pq.read_table(tmp_path / "golden" / "made-up" / "final")
    assert len(final["duo"][0]) == len(final["sparc"][0]) == 3
    assert len(final["duo_total"][0]) == 20


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("entry", "images", "cuts"),
    [("first image alone", 1, []), ("first five images alone", 5, [2, 4])],
)
def test_few_images_have_the_golden_scores_on_ray(
    tmp_path: Path, entry: str, images: int, cuts: list[int]
) -> None:
    whole = read_npz(str(GOLDEN / "scores.npz"), str(GOLDEN / "prompts.json"))
    assert whole.labels is not None
    few = Matrices(whole.ids[:images], whole.scores[:images], whole.bank, whole.labels[:images])
    phase = phase_of(few, tmp_path, Method(), cuts)
    statistics = phase.score(phase.fit(Seen()), Seen())
    fusions = ray.get(phase.fit(Seen()))
    found = fusions["duo"].final(few.scores)[1]
    expected = np.array(golden_answer("duo")[entry]["scores"]).reshape(images, 20)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    decisions, _ = phase.decide(statistics, Seen())
    assert ray.get(decisions)["duo"].status == ("prior",) * 20
    stored = pq.read_table(tmp_path / "golden" / "made-up" / "final")["duo"].to_pylist()
    np.testing.assert_allclose(stored, expected, rtol=0, atol=1e-6)  # stored as float32


@pytest.mark.usefixtures("cluster")
def test_labels_and_decisions_do_not_depend_on_the_shards(tmp_path: Path) -> None:
    found = []
    for cuts in ([400], [150, 300, 450, 600, 750]):
        folder = tmp_path / str(len(cuts))
        reduced(golden_phase(folder, Method(), cuts), Seen())
        unit = folder / "golden" / "made-up"
        found.append([(unit / "decisions.json").read_bytes(), pq.read_table(unit / "labels")])
        wide = pq.read_table(unit / "labels-wide")
        assert wide.column_names[:3] == ["image_id", "present", "aeroplane"]
    rules, labels = zip(*found, strict=True)
    assert rules[0] == rules[1]
    assert json.loads(rules[0])["duo"]["classes"]["cat"]["status"] == "clear"
    assert labels[0].equals(labels[1])
    assert labels[0].column_names == ["image_id", "class", "probability", "present"]
    assert labels[0].num_rows == 800 * 20


@pytest.mark.usefixtures("cluster")
def test_a_fixed_strategy_is_not_sorted_for(tmp_path: Path) -> None:
    phase = golden_phase(tmp_path, Method(strategy="kmax", k=2), [400])
    fusions = ray.get(phase.fit(Seen()))
    assert [int(np.flatnonzero(weights)[0]) for weights in fusions["sparc"].weights] == [2] * 20
    kinds = Kinds({"duo": FUSIONS["duo"].passes[1][1]})
    found = reduce_checkpoints.load_any(phase.shards.unit.state(STAGES[1], 0), kinds)
    assert found is not None
    assert [*found[0]] == ["duo"]


@pytest.mark.usefixtures("cluster")
def test_a_pass_that_makes_no_progress_ends_with_a_sentence(tmp_path: Path) -> None:
    phase = golden_phase(tmp_path, Method(), [400])
    phase.passes.limit = 0.001
    with pytest.raises(UserError, match=r"The pass prompt statistics took longer than resources"):
        phase.fit(Seen())


@pytest.mark.usefixtures("cluster")
def test_what_else_a_reduce_learnt_from_is_not_taken_over(tmp_path: Path) -> None:
    first = golden_phase(tmp_path, Method(), [400])
    silent = Seen()
    fusion = ray.get(first.fit(silent))["sparc"]
    state = tmp_path / "golden" / "made-up" / "reduce" / "prompt_statistics" / "00.npz"
    kept = state.stat().st_mtime_ns
    np.testing.assert_equal(ray.get(first.fit(silent))["sparc"].weights, fusion.weights)
    assert state.stat().st_mtime_ns == kept
    other = replace(first, method=Method(image_debias="none"))
    assert ray.get(other.fit(silent))["sparc"].moments.mean[0] != fusion.moments.mean[0]
    assert state.stat().st_mtime_ns > kept


class Threads(InProcess):
    """Does work in several threads, so that groups end in any order."""

    def finished(self, references: Sequence[Any], limit: float, what: str) -> Iterator[Any]:
        with ThreadPoolExecutor(self.cpus) as pool:
            work = {pool.submit(resolved, reference): reference for reference in references}
            yield from (work[done] for done in as_completed(work))


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_the_number_of_workers_changes_no_bit(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, workers: int
) -> None:
    def files(folder: Path, executor: InProcess) -> dict[str, bytes]:
        """The states and final scores of 67 shards in 34 groups, merged in three chunks."""
        with using(executor):
            phase, silent = golden_phase(folder, Method(), list(range(12, 800, 12))), Seen()
            get(phase.score(phase.fit(silent), silent), phase.limit, "The reduce")
        assert silent.images == dict.fromkeys(STAGES[:3], 800)
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for name in ("reduce", "final")
            for path in (folder / "golden" / "made-up" / name).rglob("*.*")
        }

    expected = files(tmp_path_factory.mktemp("one"), InProcess())
    assert len(expected) == 3 * 34 + 67
    assert files(tmp_path, Threads(workers)) == expected


@pytest.mark.parametrize(
    ("shards", "expected"),
    [(1, 1), (64, 64), (65, 33), (422, 53), (1024, 64), (65_536, 4096), (3_906_250, 3815)],
)
def test_groups_follow_the_data_and_are_neighbours(shards: int, expected: int) -> None:
    groups = Passes([1] * shards, limit=300).groups()
    assert len(groups) == expected
    edges = [0, *(group.shards.stop for group in groups)]
    assert [group.shards.start for group in groups] == edges[:-1]
    assert edges[-1] == shards
    assert [group.number for group in groups] == list(range(len(groups)))
