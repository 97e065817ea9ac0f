"""A session: which options and what of a run each experiment needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparc_dist.cli import main
from sparc_dist.config import parse
from sparc_dist.errors import UserError
from sparc_dist.research.result import Result
from sparc_dist.research.session import Options, run_experiments
from sparc_dist.runs import RunLayout, claim


@pytest.fixture
def unfinished(tmp_path: Path) -> str:
    """A run that has begun and has neither scores nor labels."""
    dataset = {"name": "pets", "kind": "folder", "images": "/nowhere", "classes": ["cat", "dog"]}
    backbone = {"name": "tiny", "model": "sparc-tiny"}
    raw = {"output": str(tmp_path), "datasets": [dataset], "backbones": [backbone]}
    claim(RunLayout(str(tmp_path)), parse(raw, "test"))
    return str(tmp_path)


def test_only_an_experiment_that_needs_labels_refuses_a_run_without_them(unfinished: str) -> None:
    ((name, found),) = run_experiments(["theory"], unfinished, Options())
    assert name == "theory"
    assert isinstance(found, Result)
    assert "![" in (Path(unfinished) / "experiments" / "index.md").read_text()
    with pytest.raises(UserError, match="labels"):
        next(run_experiments(["theory", "main"], unfinished, Options()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plug-in", "--method", "tagclip"], "--method says whose --scores are given"),
        (["main", "--class", "cat"], "--class does not apply to main"),
    ],
)
def test_options_that_do_not_apply_are_errors(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", *arguments, "--run", "/nowhere"]) == 2
    assert message in capsys.readouterr().err
