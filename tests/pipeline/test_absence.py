"""What a start leaves alone: runs that it may not read, and files that are not its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparc_dist.cli import main
from tests.support.s3 import FaultProxy, Request, S3Server


def _config(finished: Path, **changes: Any) -> str:
    config = json.loads((finished / "config.yaml").read_text()) | changes
    (finished / "changed.yaml").write_text(json.dumps(config))
    return str(finished / "changed.yaml")


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("merge", [True, False])
def test_a_run_without_the_right_to_read_is_left_alone(
    hide: bool, merge: bool, finished: Path, s3: S3Server, on_s3: FaultProxy
) -> None:
    """With its own config, and with another one: a finished run seemed to be missing."""
    place = s3.folder / "runs" / f"late-{hide}-{merge}"
    shutil.copytree(finished / "run", place)
    before = _contents(place)
    config = _config(finished, output=f"s3://runs/{place.name}", method={"merge": merge})

    def policy(request: Request) -> tuple[int, str] | None:
        late = request.method in {"GET", "HEAD"} and request.key.startswith(place.name)
        return (403, "AccessDenied") if late else None

    on_s3.behave(policy=policy, hide_missing=hide)
    assert main(["run", config]) == 2
    after = {path: content for path, content in _contents(place).items() if path in before}
    assert after == before
    assert not [r for r in on_s3.log if r.method == "DELETE" and "access-check" not in r.key]


@pytest.mark.parametrize("hide", [False, True])
def test_without_a_readable_record_nothing_is_deleted(
    hide: bool, finished: Path, s3: S3Server, on_s3: FaultProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    place = s3.folder / "runs" / f"record-{hide}"
    shutil.copytree(finished / "run", place)
    config = _config(finished, output=f"s3://runs/{place.name}", method={"merge": False})

    def policy(request: Request) -> tuple[int, str] | None:
        return (403, "AccessDenied") if request.key.endswith("run.json") else None

    on_s3.behave(policy=policy, hide_missing=hide)
    assert main(["run", config]) == 2
    assert "run.json" in capsys.readouterr().err
    assert not [r for r in on_s3.log if r.method == "DELETE" and "access-check" not in r.key]


@pytest.mark.parametrize("name", ["labels.csv", "report/index.html", "report/notes.txt"])
def test_files_of_others_are_not_overwritten(
    name: str, scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("mine")
    photo = next(scenes.iterdir())
    asked = ["label", str(photo), "--classes", "cat,dog", "--model", "sparc-tiny", "--out"]
    assert main([*asked, str(out)]) == 2
    assert f"has {name.removesuffix('/notes.txt')}, but no run.json" in capsys.readouterr().err
    assert _contents(out) == {out / name: b"mine"}
    assert main([*asked, str(tmp_path / "other")]) == 0
