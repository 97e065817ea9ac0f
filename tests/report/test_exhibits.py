"""Exhibits: what pages show of a finished unit adds up, is bounded and has safe names."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparc_dist import storage
from sparc_dist.images.decoding import BadImage, thumbnail
from sparc_dist.report import write_report
from sparc_dist.report.exhibit import ROWS, ClassScore, UnitExhibit
from sparc_dist.report.exhibits import build_exhibits
from sparc_dist.report.pictures import SIDE
from sparc_dist.report.shown import EXPLAINED, PROMPTS
from sparc_dist.runs import Results, RunLayout, read_record
from sparc_dist.runs.record import discard
from sparc_dist.runs.refit import Rule, refit
from sparc_dist.runs.run import open_unit
from sparc_dist.runs.slugs import LONGEST, image_key, slugs
from tests.support.cases import golden
from tests.support.golden_unit import CLASSES, IDS, golden_fusions, golden_prompts, write_unit

KEY = ("voc", "tiny")


def exhibits(root: Path) -> dict[tuple[str, str], UnitExhibit]:
    layout = RunLayout(str(root))
    return build_exhibits(Results.read(layout, read_record(layout)), 600)


def close(found: object, expected: object) -> None:
    assert np.abs(np.asarray(found) - np.asarray(expected)).max() < 1e-5


def total(shown: ClassScore) -> float:
    return shown.own + sum(prompt.added for prompt in shown.prompts) + shown.rest


@pytest.mark.parametrize("primary", ["sparc", "duo"])
def test_scores_are_the_sum_of_what_is_shown(tmp_path: Path, primary: str) -> None:
    write_unit(tmp_path, primary)
    unit = exhibits(tmp_path)[KEY]
    fusions, final = golden_fusions()
    fusion = fusions[primary]
    expected, similarity = final.methods[primary], golden()[0].singleton
    explained = 0
    for image in unit.images.values():
        number = IDS.index(image.image_id)
        order = [CLASSES.index(shown.name) for shown in image.classes]
        scores = [shown.score for shown in image.classes]
        assert sorted(order) == list(range(len(CLASSES)))
        assert scores == sorted(scores, reverse=True)
        close(scores, expected[number, order])
        close([shown.similarity for shown in image.classes], similarity[number, order])
        assert all(shown.prompts for shown in image.classes[:EXPLAINED])
        for index, shown in zip(order, image.classes, strict=True):
            if not shown.prompts:
                continue
            explained += 1
            close(total(shown), shown.score)
            assert len(shown.prompts) <= PROMPTS
            added = [prompt.added for prompt in shown.prompts]
            assert added == sorted(added, reverse=True)
            close(added, [prompt.weight * prompt.debiased for prompt in shown.prompts])
            close(shown.own, fusion.column_weights(index)[0] * shown.debiased)
    assert explained >= EXPLAINED * len(unit.images)


def test_the_rest_of_sparc_is_what_other_prompts_add(tmp_path: Path) -> None:
    write_unit(tmp_path, "sparc")
    image = next(iter(exhibits(tmp_path)[KEY].images.values()))
    fusion, number = golden_fusions()[0]["sparc"], IDS.index(image.image_id)
    shown = image.classes[0]
    index = CLASSES.index(shown.name)
    (added,) = fusion.contributions(golden()[0][number : number + 1], [index])
    largest = np.sort(added[0])[::-1]
    np.testing.assert_allclose([p.added for p in shown.prompts], largest[:PROMPTS], atol=1e-9)
    assert shown.rest == pytest.approx(largest[PROMPTS:].sum(), abs=1e-5)


def test_rows_show_what_they_say(tmp_path: Path) -> None:
    write_unit(tmp_path, "duo")
    unit = exhibits(tmp_path)[KEY]
    for shown in unit.classes:
        assert tuple(shown.rows) == ROWS
        images = {name: [unit.images[key] for key in keys] for name, keys in shown.rows.items()}
        found = {
            name: [next(c for c in image.classes if c.name == shown.name) for image in row]
            for name, row in images.items()
        }
        threshold = shown.threshold_score
        assert threshold is not None
        assert all(c.present and c.score >= threshold - 1e-6 for c in found["above"])
        assert not any(c.present for name in ("below", "random", "misses") for c in found[name])
        assert [c.score for c in found["above"]] == sorted(c.score for c in found["above"])
        for image in images["false_positives"]:
            assert image.truth is not None
            assert shown.name not in image.truth
        assert all(shown.name in (image.truth or ()) for image in images["misses"])
        # Whoever is shown for a class is explained for it.
        assert all(c.prompts for row in found.values() for c in row)
        assert sum(shown.counts) == len(IDS)
        assert len(shown.edges) == len(shown.counts) + 1 <= 61
        assert shown.edges[0] < threshold < shown.edges[-1]
        assert 1 < len(shown.precision_recall) <= 200
        assert shown.precision_recall[-1][0] == 1.0
        assert shown.ap["duo"] == unit.metrics["duo"]["AP"][shown.name]


def test_without_labels_there_are_no_rows_that_need_them(tmp_path: Path) -> None:
    write_unit(tmp_path, labelled=False)
    unit = exhibits(tmp_path)[KEY]
    assert all(tuple(shown.rows) == ROWS[:-2] for shown in unit.classes)
    assert all(shown.f1 is None and not shown.precision_recall for shown in unit.classes)
    assert all(image.truth is None for image in unit.images.values())


def test_a_refit_changes_thresholds_and_rows(tmp_path: Path) -> None:
    write_unit(tmp_path, "duo")
    before = exhibits(tmp_path)[KEY].classes[3]
    refit(open_unit(str(tmp_path)), Rule(threshold=0.9))
    after = exhibits(tmp_path)[KEY].classes[3]
    assert after.threshold_probability == pytest.approx(0.9)
    assert before.rows["above"] != after.rows["above"]
    assert before.rows["likeliest"] == after.rows["likeliest"]
    refit(open_unit(str(tmp_path)), Rule(top=2))
    unit = exhibits(tmp_path)[KEY]
    assert unit.classes[3].threshold_score is None
    assert all(sum(c.present for c in image.classes) == 2 for image in unit.images.values())


def test_without_stored_scores_classes_are_not_explained(tmp_path: Path) -> None:
    unit = write_unit(tmp_path)
    shutil.rmtree(Path(unit.root) / "scores")
    images = exhibits(tmp_path)[KEY].images.values()
    assert not any(shown.prompts for image in images for shown in image.classes)


def test_a_unit_without_a_gallery_has_no_exhibit(tmp_path: Path) -> None:
    storage.delete(write_unit(tmp_path).gallery)
    assert exhibits(tmp_path) == {}


def picture(path: Path, size: tuple[int, int] = (320, 200)) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "at home"  # turned, with a description
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, "red").save(path, "JPEG", exif=exif, comment=b"private")


def test_thumbnails_are_made_once_and_errors_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = tmp_path / "photos"
    for image_id in IDS[1:]:
        picture(photos / f"{image_id}.jpg", (40, 20))
    (photos / f"{IDS[5]}.jpg").write_bytes(b"no image")
    root = tmp_path / "run"
    write_unit(root)
    monkeypatch.setattr("sparc_dist.report.pictures.read_image", redirected(photos))
    unit = exhibits(root)[KEY]
    assert unit.slug == "voc-tiny"
    for image in unit.images.values():
        if image.image_id in (IDS[0], IDS[5]):
            assert image.thumbnail is None
            assert image.error in ("there is no such file", "not an image in a known format")
        else:
            assert image.thumbnail == f"thumbnails/voc/{image.key}.jpg"
            assert (root / "report" / image.thumbnail).stat().st_size < 10_000
    # What is there is not read again.
    shutil.rmtree(photos)
    assert exhibits(root)[KEY].images.keys() == unit.images.keys()
    assert sum(1 for _ in (root / "report").rglob("*.jpg")) >= len(unit.images) - 2
    # Others leave when other images are chosen, and all leave with the run.
    refit(open_unit(str(root)), Rule(threshold=0.99))
    layout = RunLayout(str(root))
    storage.write_table(layout.dataset("voc").prompts, golden_prompts())
    write_report(str(root))
    keys = exhibits(root)[KEY].images.keys()
    assert {path.stem for path in (root / "report/thumbnails").rglob("*.jpg")} <= set(keys)
    discard(layout, read_record(layout))
    assert not [path for path in root.rglob("*") if path.is_file()]


def redirected(photos: Path):  # type: ignore[no-untyped-def]
    from sparc_dist.images.reading import read_image

    return lambda uri: read_image(str(photos / uri.rpartition("/")[2]))


def test_a_thumbnail_is_small_upright_and_without_metadata(tmp_path: Path) -> None:
    picture(tmp_path / "a.jpg", (3200, 2000))
    small = thumbnail((tmp_path / "a.jpg").read_bytes(), SIDE)
    with Image.open(io.BytesIO(small)) as image:
        assert image.size == (100, 160)
        assert not image.getexif()
        assert "comment" not in image.info
    assert b"private" not in small
    assert b"at home" not in small
    with pytest.raises(BadImage, match="empty"):
        thumbnail(b"", SIDE)


def test_slugs_are_safe_and_unique() -> None:
    names = ["Cat", "cat", "cat ", "c/a\\t", "../..", "<script>alert(1)</script>", "猫", "犬", ""]
    names += ["x" * 4096, "x" * 4095 + "y", "index", "thumbnails", "CON", "a b", "a-b", "a b 2"]
    names += ["%2e%2e", "a\0b", "\ud800", "x-2", "é", "e"]
    found = slugs(names)
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug) for slug in found)
    assert all(len(slug) <= LONGEST + 4 for slug in found)
    assert not {"index", "thumbnails", "con"} & set(found)
    assert found[:2] == ["cat", "cat-2"]
    keys = {image_key(0, name) for name in names} | {image_key(1, name) for name in names}
    assert len(keys) == 2 * len(names)
    assert all(re.fullmatch("[0-9a-f]{24}", key) for key in keys)
