"""The command that starts the viewer: what it loads, prints and refuses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparc_dist.cli import main
from tests.support.command import COMMAND
from tests.support.golden_unit import write_unit
from tests.support.viewing import unit_of, viewing


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run to review; its images need not exist."""
    write_unit(tmp_path / "run")
    return tmp_path / "run"


def test_nothing_slow_is_loaded_at_the_start() -> None:
    code = (
        "import sys, sparc_dist.report.view.server, sparc_dist.cli.view;"
        "slow = ('ray', 'torch', 'open_clip', 'matplotlib', 'scipy', 'sparc_dist.pipeline');"
        "print([name for name in slow if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_an_address_and_ends_on_a_signal(run: Path, number: int) -> None:
    command = [str(COMMAND), "view", str(run), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as on:
        assert on.stdout
        url = on.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", url)
        os.kill(on.pid, number)
        out, err = on.communicate(timeout=60)
    assert (on.returncode, err) == (0, "")
    assert out.endswith("Stopped.\n")


def test_what_cannot_be_viewed_says_so(
    tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err
    with viewing(run) as client:
        port = client.server.server_port
        assert main(["view", str(run), "--port", str(port)]) == 2
    assert f"--port {port}: Address already in use; choose another port." in capsys.readouterr().err
    Path(unit_of(run).metrics).unlink()
    with viewing(run) as client:
        assert "is not finished" in client.get("/").text
        assert client.get("/class/voc/tiny/0").status == 409
