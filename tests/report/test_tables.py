from typing import Any

from sparc_dist.report import to_markdown
from sparc_dist.report.labels import ClassLabel, ImageLabels
from sparc_dist.report.site import site
from sparc_dist.report.tables import to_csv
from sparc_dist.runs import Results, RunLayout
from sparc_dist.runs.decisions import doubts_of


def metrics(zsclip: float, sparc: float, **changes: Any) -> dict[str, Any]:
    def column(value: float) -> dict[str, Any]:
        return {"mAP": value, "AP": {"cat": value, "<dog>": value}}

    return {
        "zsclip": column(zsclip),
        "debiased": column((zsclip + sparc) / 2),
        "sparc": column(sparc),
        "primary": "sparc",
        "doubts": {},
        "images": 100,
        "errors": {"images": 0, "share": 0.0, "reasons": {}},
        "labelled": 100,
        "notes": [],
        "stages": {"scoring": {"images": 100, "seconds": 2.0, "images_per_second": 50.0}},
        "recovery": {"storage_retries": 7, "shards_scored_again": 0},
        **changes,
    }


ERRORS = {"images": 3, "share": 3 / 103, "reasons": {"<empty>": 2, "no image": 1}}
RESULTS = Results(
    RunLayout("/nowhere"),
    ["voc", "coco"],
    ["B32", "RN50"],
    {
        ("voc", "B32"): metrics(40.0, 50.0),
        ("voc", "RN50"): metrics(50.0, 70.04, errors=ERRORS, notes=["A note."]),
        ("coco", "B32"): metrics(20.0, 30.0),
    },
    {("coco", "RN50"): "The disk is full."},
    {"voc": ["2 files are missing."], "coco": []},
)


def first_page(results: Results, figures: dict[tuple[str, str], str] | None = None) -> str:
    """The first page of units that have no pages of their own, its lines joined."""
    return " ".join(dict(site(results, (), figures or {}))["index.html"].split())


def test_a_method_below_zsclip_is_told_above_the_table() -> None:
    worse = metrics(40.0, 30.0, primary="duo", duo={"mAP": 38.0, "AP": {}})
    results = Results(RunLayout("/nowhere"), ["pets"], ["B32"], {("pets", "B32"): worse})
    sentence = "pets × B32: duo has a lower mAP (38.0) than ZSCLIP (40.0)"
    for page, table in ((to_markdown(results), "| data set"), (first_page(results), "<table ")):
        assert 0 < page.index(sentence) < page.index(table)
    assert not list(RESULTS.warnings())


def test_classes_in_doubt_are_listed_with_what_would_help() -> None:
    names = [f"class {number}" for number in range(10)]
    status = ["clear", "given", "unclear", "common", "constant", *["unclear"] * 5]
    unsure = metrics(40.0, 50.0, doubts=doubts_of(status, names))
    results = Results(RunLayout("/nowhere"), ["pets"], ["B32"], {("pets", "B32"): unsure})
    remarks = list(results.remarks())
    assert len(remarks) == 3
    assert "class 4" in remarks[0]
    assert "another model" in remarks[0]
    assert "class 2, class 5, class 6, class 7, class 8, class 9" in remarks[1]
    assert "--answers" in remarks[1]
    assert "contain class 3, and" in remarks[2]
    assert "--prevalence" in remarks[2]
    assert not doubts_of(["clear", "labelled"], names[:2])


def test_the_table_has_one_column_per_backbone_and_averages() -> None:
    assert to_markdown(RESULTS) == (
        "# mAP (%)\n\n"
        "| data set | method | B32 | RN50 | average |\n"
        "| --- | --- | ---: | ---: | ---: |\n"
        "| voc | ZSCLIP | 40.0 | 50.0 | 45.0 |\n"
        "| voc | debiased | 45.0 | 60.0 | 52.5 |\n"
        "| voc | SPARC | 50.0 | 70.0 | 60.0 |\n"
        "| coco | ZSCLIP | 20.0 | – | 20.0 |\n"
        "| coco | debiased | 25.0 | – | 25.0 |\n"
        "| coco | SPARC | 30.0 | – | 30.0 |\n\n"
        "- voc: 2 files are missing.\n"
        "- voc × RN50: 100 of 103 images have labels; mAP covers only those.\n"
        "- voc × RN50: 3 of 103 images could not be read: 2 × <empty>; 1 × no image.\n"
        "- voc × RN50: A note.\n"
        "- coco × RN50 failed: The disk is full.\n"
    )


def test_csv_has_full_precision_and_empty_cells_for_missing_map() -> None:
    lines = to_csv(RESULTS).splitlines()
    assert len(lines) == 1 + 2 * 3 * 3
    assert "voc,RN50,sparc,70.04" in lines
    assert "coco,RN50,sparc," in lines
    assert "voc,average,zsclip,45.0" in lines


def test_classes_without_positives_are_listed() -> None:
    column = {"mAP": 10.0, "AP": {"cat": 10.0, "cow": None}}
    unit = metrics(0, 0) | {"zsclip": column, "debiased": column, "sparc": column}
    results = Results(RunLayout("/nowhere"), ["voc"], ["B32"], {("voc", "B32"): unit})
    assert "- voc × B32: no image contains cow." in to_markdown(results)
    assert "cow</bdi></th>" not in first_page(results)


def test_the_page_escapes_names_and_shows_every_unit() -> None:
    page = first_page(RESULTS, {("voc", "B32"): "figures/a&b.png"})
    assert '<bdi class="name">&lt;dog&gt;</bdi>' in page
    assert "<dog>" not in page
    assert 'src="figures/a&amp;b.png"' in page
    assert page.count("<h2>") == 3
    assert '<td class="number">+20.0</td>' in page
    assert "3 of 103 images (2.9 %) could not be read." in page
    assert '&lt;empty&gt;</bdi></th><td class="number">2</td>' in page
    assert "7 storage retries." in page
    assert "shards scored again" not in page


def test_the_likeliest_class_is_not_always_the_one_with_the_highest_score() -> None:
    classes = [
        ClassLabel("ghost", None, False, 2.0),
        ClassLabel("cat", 0.1, False, 1.0),
        ClassLabel("dog", 0.3, False, 0.5),
    ]
    image = ImageLabels("a.jpg", classes)
    assert image.empty
    assert image.line() == "a.jpg: nothing (likeliest: dog 0.30)"
    present = ImageLabels("a.jpg", [*classes[:2], ClassLabel("dog", 0.3, True, 0.5)])
    assert not present.empty
    assert present.line() == "a.jpg: dog 0.30"
