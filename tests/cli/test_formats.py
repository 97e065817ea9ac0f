"""Runs and labelers of another format: every command that reads one refuses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparc_dist import storage
from sparc_dist.cli import main
from sparc_dist.runs import labeler_file
from sparc_dist.runs.record import FORMAT
from tests.support.golden_unit import CLASSES, write_unit
from tests.support.sealed import reseal, set_fields

COMMANDS = [
    "status {run}",
    "verify {run}",
    "report {run}",
    "report {good} --against {run}",
    "view {run} --port 0",
    "export {run} --format csv --out {new}",
    "ask {run} --out {new}",
    "decide {run} --top 2",
    "apply {run} {new} --out {new}",
    "serve {run}",
    "plan {config}",
    "run {config}",
    "run {config} --only reduce",
    "run {other} --embeddings-from {run}",
    "label {new} --classes cat,dog --model sparc-tiny --out {run}",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_of_another_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    run, good = tmp_path / "run", tmp_path / "good"
    write_unit(good)
    write_unit(run)
    set_fields(run / "run.json", format=FORMAT + 1)
    for path in run.glob("*/**/*.json"):
        storage.write_json(str(path), {})  # it may differ, so nothing but run.json is read
    places = {"run": run, "good": good, "new": tmp_path / "new"}
    for name, output in (("config", run), ("other", tmp_path / "elsewhere")):
        data = {"name": "voc", "images": str(tmp_path / "i.csv"), "classes": CLASSES}
        model = {"name": "tiny", "model": "sparc-tiny"}
        config = {"output": str(output), "datasets": [data], "backbones": [model]}
        places[name] = tmp_path / f"{name}.yaml"
        places[name].write_text(json.dumps(config))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main([part.format(**places) for part in command.split()]) == 2
    message = f"The run at {run} has format {FORMAT + 1}, and sparc_dist "
    assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("command", ["apply {file} {new} --out {new}", "serve {file}"])
def test_a_labeler_of_another_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    file = Path(write_unit(tmp_path / "run").labeler)
    content = file.read_bytes()
    number = f'\\"format\\": {labeler_file.FORMAT}'.encode()
    assert content.count(number) == 1
    file.write_bytes(content.replace(number, number[:-1] + b"9"))
    reseal(file)
    places = {"file": file, "new": tmp_path / "new"}
    assert main([part.format(**places) for part in command.split()]) == 2
    assert f"The labeler {file} has format 9, and sparc_dist " in capsys.readouterr().err
