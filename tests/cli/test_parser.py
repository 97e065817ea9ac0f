"""The command line itself: what it imports, what it suggests, how runs are named, exit codes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from sparc_dist import storage
from sparc_dist.cli import main
from sparc_dist.cli.command_line import COMMANDS, parser
from sparc_dist.cli.experiment import METHODS
from sparc_dist.cli.simulate import OFFICIAL, TEXT
from sparc_dist.config import DATASET_KINDS
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.planning import Speeds
from sparc_dist.research.plug_in_scores import METHODS as PLUG_IN_METHODS
from sparc_dist.research.simulation import Settings, simulate
from sparc_dist.research.simulation_model import Noise
from tests.support.command import sparc_dist

Output = pytest.CaptureFixture[str]
#: Each of them takes longer to import than a page of help may take.
HEAVY = (
    "numpy pyarrow pydantic scipy matplotlib fsspec yaml PIL ray torch open_clip asyncio".split()
)


def test_a_help_page_imports_nothing_heavy() -> None:
    program = "import sys, sparc_dist.cli.command_line as c; c.parser(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert {*HEAVY} & {*done.stdout.decode().split()} == set()


def test_what_help_pages_repeat_is_as_in_the_code() -> None:
    plan = parser().parse_args(["plan"])
    assert Speeds(plan.tflops, plan.half_tflops, plan.core_gflops, plan.decodes) == Speeds()
    assert tuple(PLUG_IN_METHODS) == METHODS
    assert tuple(name for name, kind in DATASET_KINDS.items() if kind.official) == OFFICIAL
    rates = ", ".join(f"{field.name} {field.default:g}" for field in fields(Noise))
    assert " ".join(TEXT.split()).endswith(rates)


@pytest.mark.parametrize(
    ("arguments", "verbose"),
    [(("--verbose", "datasets"), True), (("datasets", "--verbose"), True), (("datasets",), False)],
)
def test_verbose_stands_before_or_after_the_command(
    arguments: tuple[str, ...], verbose: bool
) -> None:
    assert parser().parse_args(arguments).verbose is verbose


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (("lable", "photos"), "; did you mean 'label'?\n"),
        (("experiment", "rank-fussion", "--run", "r"), "; did you mean 'rank-fusion'?\n"),
        (("xyzzy",), ")\n"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_closest(
    arguments: tuple[str, ...], end: str, capsys: Output
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert capsys.readouterr().err.endswith(end)


def completed(*words: str, capsys: Output) -> list[str]:
    """Returns what bash offers for the last of the words."""
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out + (
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sparc_dist; echo "${COMPREPLY[@]}"'
    )
    command = ["bash", "-euc", script, "bash", "sparc-dist", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_and_choices(capsys: Output) -> None:
    assert completed("rep", capsys=capsys) == ["report"]
    assert completed("--verb", capsys=capsys) == ["--verbose"]
    assert completed("label", "--cl", capsys=capsys) == ["--classes"]
    assert completed("experiment", "rank", capsys=capsys) == ["rank-fusion"]
    # Not the options of `label`, which is the name of a run here.
    assert "--weights" not in completed("experiment", "few", "--run", "label", "--", capsys=capsys)
    assert completed("label", "", capsys=capsys) == []  # then bash offers files


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_every_command(shell: str, capsys: Output) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    names = [module.__name__.rpartition(".")[2] for module in COMMANDS]
    line = {"zsh": "            {}) offered=(", "fish": "-n '__fish_use_subcommand' -a {}\n"}[shell]
    assert [name for name in names if line.format(name) not in text] == []
    assert {"zsh": "--classes", "fish": "from label' -l classes\n"}[shell] in text


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("simulated")
    with using(InProcess()):  # it would start a Ray
        assert not simulate(str(root), Settings(60, 4, shard_size=30)).failures
    return root


@pytest.fixture
def run(simulated: Path, tmp_path: Path) -> Path:
    """A finished run, and its config beside it."""
    shutil.copytree(simulated, tmp_path / "run")
    config = "output: run\ndatasets: [{name: voc, images: i.csv, classes: [a]}]\n"
    (tmp_path / "run.yaml").write_text(config)
    return tmp_path / "run"


def fail(run: Path) -> Path:
    """Makes the run's only unit one that failed; returns its folder."""
    record = storage.read_json(str(run / "run.json"))
    (unit,) = record["units"]
    unit |= {"status": "failed", "error": "No more space."}
    storage.write_json(str(run / "run.json"), record)
    return run.joinpath(unit["dataset"], unit["backbone"])


READERS = {
    "status": ["status"],
    "report": ["report"],
    "decide": ["decide"],
    "ask": ["ask", "--count", "1", "--out", "questions.csv"],
    "experiment": ["experiment", "main", "--run"],
}


@pytest.mark.parametrize("form", ["{}", "file://{}", "{}.yaml"], ids=["folder", "URL", "config"])
@pytest.mark.parametrize("command", READERS)
def test_every_reader_of_a_run_takes_its_folder_its_url_and_its_config(
    command: str, form: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(run.parent)
    words = READERS[command]
    at = len(words) if command == "experiment" else 1
    assert main([*words[:at], form.format(run), *words[at:]]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "report", "experiment"])
def test_a_failed_unit_is_told_by_the_exit_code(command: str, run: Path, capsys: Output) -> None:
    fail(run)
    assert main([*READERS[command], str(run)]) == 1
    told = capsys.readouterr()
    assert "failed: No more space." in told.out + told.err


def test_a_run_that_failed_does_not_say_where_its_scores_are(run: Path, capsys: Output) -> None:
    main(["report", str(run)])
    assert "Scores, metrics and report are in" in capsys.readouterr().out
    (fail(run) / "metrics.json").unlink()
    assert main(["report", str(run)]) == 1
    told = capsys.readouterr().out
    assert "Scores, metrics and report are in" not in told
    assert "1 of 1 units failed; the report says why" in told


def test_fuse_replaces_nothing_unless_told_to(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden"
    source = ("--scores", golden / "scores.npz", "--prompts", golden / "prompts.json")
    final = tmp_path / "final.parquet"
    final.write_text("mine")
    done = sparc_dist("fuse", *source, "--out", tmp_path)
    assert (done.returncode, final.read_text()) == (2, "mine")
    assert done.stderr == (
        f"sparc-dist: {final} already exists; choose another --out, or --overwrite it.\n"
    )
    assert sparc_dist("fuse", *source, "--out", tmp_path, "--overwrite").returncode == 0
    assert final.read_bytes().startswith(b"PAR1")
