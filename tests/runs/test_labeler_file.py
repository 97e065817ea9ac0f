"""The labeler file: every bit comes back, and a file that cannot be trusted is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparc_dist.core import Decision, DuoOptions, Method, fit_fusions
from sparc_dist.errors import UserError
from sparc_dist.runs.labeler_file import (
    FORMAT,
    FittedLabeler,
    read_facts,
    read_labeler,
    write_labeler,
)
from sparc_dist.runs.refit import Rule, refit
from sparc_dist.runs.run import open_labeler, open_unit
from tests.support.cases import golden
from tests.support.golden_unit import CLASSES, golden_fusions, write_unit
from tests.support.sealed import reseal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(write_unit(tmp_path / "run").labeler)


def test_every_bit_comes_back(file: Path) -> None:
    scores = golden()[0]
    labeler, fusions = read_labeler(str(file)), golden_fusions()[0]
    for name in ("sparc", "duo", "zsclip", "debiased", "duo_total"):
        found, expected = (f.final(scores).by_name[name] for f in (labeler.fusions, fusions))
        assert found.tobytes() == expected.tobytes()
    assert labeler.images == 800
    assert [*labeler.names.classes] == CLASSES
    assert labeler.fusions.notes == fusions.notes
    write_labeler(str(file) + ".again", labeler)
    assert Path(f"{file}.again").read_bytes() == file.read_bytes()


def test_options_come_back(file: Path) -> None:
    (scores, mentions, _, _), labeler = golden(), read_labeler(str(file))
    method = Method(image_debias="sqrt", rival=0.1, duo=DuoOptions(7, 0.3, "full", False))
    fusions = fit_fusions(lambda: iter([scores]), mentions, len(CLASSES), method)
    write_labeler(str(file), replace(labeler, fusions=fusions))
    found = read_labeler(str(file)).fusions
    assert found.given.method == method
    for name in ("sparc", "duo"):
        expected = fusions.transform(scores, name)
        assert found.transform(scores, name).tobytes() == expected.tobytes()


@pytest.mark.parametrize("primary", ["sparc", "duo"])
def test_it_answers_as_the_run_did(tmp_path: Path, primary: str) -> None:
    write_unit(tmp_path, primary)
    unit, scores = open_unit(str(tmp_path)), golden()[0]
    labeler = unit.labeler()
    assert isinstance(labeler, FittedLabeler)
    answers = labeler.answer(scores)
    assert answers.scores.tobytes() == golden_fusions()[1].methods[primary].tobytes()
    stored = [(part.probability, part.present) for part in unit.labels()]
    probability, present = (np.concatenate(parts) for parts in zip(*stored, strict=True))
    assert answers.probability.astype(np.float32).tobytes() == probability.tobytes()
    assert (answers.present == present).all()


def test_it_follows_new_decisions(tmp_path: Path) -> None:
    write_unit(tmp_path, "duo")
    refit(open_unit(str(tmp_path)), Rule(top=2))
    labeler = open_labeler(str(tmp_path))
    assert isinstance(labeler, FittedLabeler)
    assert labeler.rule == {"top": 2}
    assert (labeler.answer(golden()[0]).present.sum(axis=1) == 2).all()


def test_a_damaged_one_is_refused(file: Path) -> None:
    content = file.read_bytes()
    header = int.from_bytes(content[:8], "little")
    generator = np.random.default_rng(0)
    for place in generator.integers(0, len(content), 200).tolist() + [header + 8, len(content) - 1]:
        changed = bytearray(content)
        changed[place] ^= 1 << int(generator.integers(8))
        file.write_bytes(changed)
        with pytest.raises(UserError, match=r"damaged or is not a labeler|has format"):
            read_labeler(str(file))
    for part in (content[:-1], content[: header // 2], b"", b"PK\x03\x04 not one"):
        file.write_bytes(part)
        with pytest.raises(UserError, match="damaged or is not a labeler"):
            read_labeler(str(file))


def test_json_of_any_depth_is_refused(file: Path) -> None:
    deep = b'{"__metadata__":' + b"[" * 10**5
    file.write_bytes(len(deep).to_bytes(8, "little") + deep)
    for read in (read_labeler, read_facts):
        with pytest.raises(UserError, match=f"^{file} is damaged or is not a labeler; copy it"):
            read(str(file))


def test_a_missing_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no labeler at"):
        open_labeler(str(tmp_path / "labeler.safetensors"))


@pytest.mark.parametrize("number", [FORMAT - 1, FORMAT + 1, None])
def test_another_format_is_refused(file: Path, number: int | None) -> None:
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    facts = json.loads(header["__metadata__"]["labeler"]) | {"format": number}
    header["__metadata__"]["labeler"] = json.dumps(facts)
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    reseal(file)
    for read in (read_labeler, read_facts):
        with pytest.raises(UserError, match=rf"has format {number}, .*reads format {FORMAT}; use"):
            read(str(file))


def test_constant_classes_stay_so(file: Path) -> None:
    labeler = read_labeler(str(file))
    rule = labeler.decisions["sparc"]
    nothing = np.full(len(CLASSES), np.nan)
    changed = Decision(
        *(rule.mean, rule.sd, rule.slope, nothing, nothing, nothing),
        ("constant",) * len(CLASSES),
        rule.before_rival,
    )
    write_labeler(
        str(file),
        FittedLabeler(labeler.fusions, {"sparc": changed}, "sparc", labeler.prompts, labeler.names),
    )
    answers = read_labeler(str(file)).answer(golden()[0][:3])
    assert np.isnan(answers.probability).all()
    assert not answers.present.any()
