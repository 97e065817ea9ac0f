"""The paper's numbers in the package, and which of them a run is compared with."""

from __future__ import annotations

import json

import pytest

from sparc_dist.config import OPENAI, BackboneConfig, DatasetConfig
from sparc_dist.research import EXPERIMENTS, paper
from sparc_dist.research.ablations import ABLATIONS
from sparc_dist.research.main_table import main_table, per_class, verdict
from sparc_dist.research.session import ExperimentSession, FinishedRun, Options
from sparc_dist.research.variants import SPARC
from sparc_dist.runs.tables import Table
from tests.support.finished_runs import dataset, finished_run


def session(run: FinishedRun) -> ExperimentSession:
    return ExperimentSession(run, Options(), ["main"])


def test_the_main_tables_averages_are_those_of_its_rows() -> None:
    for methods in paper.tables()["main"].values():
        for printed in methods.values():
            values = [printed[name] for name in paper.BACKBONES]
            assert printed["average"] == pytest.approx(sum(values) / 9, abs=0.1)


def test_the_papers_backbones_are_recognised_in_a_run() -> None:
    def paper_name(model: str, weights: str) -> str | None:
        return paper.backbone_name(BackboneConfig(name="mine", model=model, weights=weights))

    assert paper_name("ViT-B-32-quickgelu", "openai") == "ViT-B-32"
    assert paper_name("RN50x4-quickgelu", "/models/RN50x4.pt") == "RN50x4"
    assert paper_name("ViT-B-32-quickgelu", "laion400m_e32") is None
    assert paper_name("ViT-B-32-quickgelu", "/models/tuned.pt") is None
    assert {paper_name(model, file) for model, file in OPENAI.values()} == set(OPENAI)


def test_every_ablation_of_the_paper_has_its_numbers() -> None:
    for name, key in (
        ("debias", "debias_ablation"),
        ("random-prompts", "randomized_prompt_ablation"),
        ("composition", "composition_ablation"),
        ("templates", "template_ablation"),
    ):
        ours = [dict(c.paper) for c in ABLATIONS[name].conditions if c.paper]
        assert sorted(map(json.dumps, ours)) == sorted(
            json.dumps(row["mAP"]) for row in paper.tables()[key]
        )
        (sparc,) = (c for c in ABLATIONS[name].conditions if c.variant == SPARC)
        assert sparc.paper["average"] == 68.3
    assert set(ABLATIONS) < set(EXPERIMENTS)


def test_a_run_of_all_the_papers_units_is_compared_with_the_paper() -> None:
    found = main_table(session(finished_run(["coco2014", "voc2007", "nuswide"])))
    assert len(found.table.rows) == 3 * 10 * 3
    rows = {tuple(row[:3]): row[3:] for row in found.table.rows}
    assert rows["coco2014", "ViT-B-32", "SPARC"] == [70.0, 64.0, 6.0, "off"]
    assert rows["voc2007", "average", "ZSCLIP"][1] == 80.4
    assert rows["voc2007", "RN50", "debiased"][1:] == [None, None, None]
    assert not found.remarks


@pytest.mark.parametrize(
    ("off", "expected"),
    [
        (0.0, "within 0.3"),
        (-0.34, "within 0.3"),
        (0.36, "within 1"),
        (-1.04, "within 1"),
        (1.1, "off"),
    ],
)
def test_a_verdict_says_how_near_a_figure_is_to_the_papers(off: float, expected: str) -> None:
    assert verdict(off) == expected


def test_remarks_say_what_a_run_lacks() -> None:
    tiny = {"name": "mine", "model": "sparc-tiny"}
    rn50 = {"name": "theirs", "model": "RN50-quickgelu", "weights": "openai"}
    found = main_table(session(finished_run(["voc2007"], [tiny, rn50])))
    remarks = " ".join(found.remarks)
    assert "lacks COCO, NUSWIDE." in remarks
    assert "lacks ViT-L-14-336, ViT-L-14," in remarks
    assert "RN50." not in remarks.replace("RN50x", "")
    rows = {tuple(row[:3]): row[3:] for row in found.table.rows}
    assert rows["voc2007", "mine", "SPARC"] == [70.0, None, None, None]
    assert rows["voc2007", "average", "SPARC"][1] is None


def test_classes_are_sorted_by_gain_and_one_without_positives_is_last() -> None:
    found = per_class(session(finished_run(["voc2007"])))
    assert [row[1] for row in found.table.rows] == ["cat", "sofa", "dog"]
    assert [row[5] for row in found.table.rows] == [10.0, -10.0, None]
    assert "1 of 2 classes" in found.remarks[0]


def test_a_table_as_markdown_and_as_csv() -> None:
    table = Table(("name", "mAP (%)", "m"), [["a|b, c", 1 / 3, 4], ["d", None, 5]], digits=2)
    assert table.to_markdown().splitlines() == [
        "| name | mAP (%) | m |",
        "| --- | ---: | ---: |",
        "| a\\|b, c | 0.33 | 4 |",
        "| d | – | 5 |",
    ]
    assert table.to_csv() == f'name,mAP (%),m\n"a|b, c",{1 / 3!r},4\nd,,5\n'


def test_a_data_set_of_the_paper_is_recognised_under_another_name() -> None:
    data = DatasetConfig.model_validate(dataset("coco2014") | {"name": "mine"})
    assert paper.dataset_name(data) == "COCO"


def test_what_a_peer_publishes_is_named_for_the_data_sets_of_a_run() -> None:
    assert paper.peers(finished_run(["coco2014"]).datasets) == []
    (remark,) = paper.peers(finished_run(["coco2014", "voc2007"]).datasets)
    assert remark.endswith("publishes: voc2007 92.5 %.")
