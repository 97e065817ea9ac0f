"""How soon a run scores its first images, as a job and in one process.

Submits a run with ``ray job submit`` to a Ray on this machine and waits for its first scored shard;
makes the same run in one process. Compares both with a bare open_clip script, a process of its own
too, on the same images, texts and weights. Few images, so that little is computed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from made_up import manifest_rows, photos, random_backbone, write_config
from measuring import free_port, option, options_of, report
from sparc_dist import storage
from sparc_dist.backbones.models import written_out
from sparc_dist.backbones.texts import texts_of
from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError
from sparc_dist.pipeline import configure_ray
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import RunLayout

BARE = Path(__file__).with_name("bare.py")
RUN = (sys.executable, "-m", "sparc_dist", "run", "--only", "score")
#: Seconds between two looks at what a job has written.
POLL = 0.02


@dataclass(frozen=True)
class Options:
    """The options."""

    model: str = option("ViT-B-32-quickgelu", "of open_clip, with random weights, or sparc-tiny")
    backbones: int = option(1, "number of backbones, all with the same weights")
    images: int = option(8, "number of images, which are one shard")
    rounds: int = option(3, "how often everything is measured; medians are printed")


@dataclass(frozen=True)
class Starts:
    """Starts the same work in three ways; each returns the seconds that it took.

    project: the folder with the configs. dashboard: where jobs are submitted.
    """

    project: Path
    dashboard: str
    manifest: Path
    backbones: Sequence[BackboneConfig]

    def job(self, name: str) -> float:
        """Submits a run as a job; waits for its first scored shard, and then for its end."""
        config = self._config(name)
        submit = ("ray", "job", "submit", f"--address={self.dashboard}", "--working-dir=.", "--")
        units = [config.with_suffix("") / "made-up" / each.name for each in self.backbones]

        def first_shard() -> bool:
            return all(any(unit.glob("scores/*.parquet")) for unit in units)

        return self._seconds([*submit, *RUN, config.name], first_shard)

    def process(self, name: str) -> float:
        """Makes a run in one process."""
        return self._seconds([*RUN, self._config(name).name])

    def bare(self, run: str) -> float:
        """Runs the bare script on the images and texts of a run."""
        first, dataset = self.backbones[0], RunLayout(str(self.project / run)).dataset("made-up")
        bank = PromptBank.from_table(storage.read_table(dataset.prompts))
        job: dict[str, Any] = {"model": first.model, "weights": first.weights}
        job |= {"backbones": len(self.backbones)}
        job |= {"images": pq.read_table(self.manifest)["uri"].to_pylist()}
        job |= {"texts": [text for each in texts_of(bank) for text in written_out(each)]}
        path = self.project / "bare.json"
        path.write_text(json.dumps(job))
        return self._seconds([sys.executable, str(BARE), str(path)])

    def _config(self, name: str) -> Path:
        backbones = [each.model_dump(mode="json") for each in self.backbones]
        dataset = {"images": str(self.manifest), "background": "none"}
        return write_config(self.project / f"{name}.yaml", dataset, backbones=backbones)

    def _seconds(self, command: list[str], done: Callable[[], bool] = lambda: False) -> float:
        """Runs a command; returns the seconds until ``done``, or else until its end."""
        start, end = time.perf_counter(), 0.0
        log = self.project / "log.txt"
        with log.open("w") as out:
            process = subprocess.Popen(command, cwd=self.project, stdout=out, stderr=out)
            while process.poll() is None:
                if not end and done():
                    end = time.perf_counter()
                time.sleep(POLL)
        if process.returncode:
            raise UserError(log.read_text())
        return (end or time.perf_counter()) - start


def main() -> None:
    """Measures some rounds; each run starts from nothing."""
    options = options_of(Options, __doc__)
    os.environ.pop("RAY_ADDRESS", None)
    # Without the user's cache of texts, which would have those of the round before.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(), "SPARC_CACHE": ""}
    configure_ray()
    found: dict[str, list[float]] = {"job": [], "process": []}
    with TemporaryDirectory() as folder, _starts(options, folder) as starts:
        for number in range(options.rounds):
            job, process = starts.job(f"job-{number}"), starts.process(f"process-{number}")
            bare = starts.bare(f"job-{number}")
            found["job"].append(job / bare)
            found["process"].append(process / bare)
    report(
        f"start of a run with {options.backbones} × {options.model} on {options.images} images",
        {
            "time, ray job submit to the first scored shard / bare script": (
                f"{median(found['job']):.2f}"
            ),
            "time, run in one process / bare script": f"{median(found['process']):.2f}",
        },
    )


@contextmanager
def _starts(options: Options, folder: str) -> Iterator[Starts]:
    """Provides the inputs and a Ray that takes jobs."""
    backbone = random_backbone(options.model, folder)
    rows = manifest_rows(photos("", options.images, folder), options.images)
    manifest, project = Path(folder, "manifest.parquet"), Path(folder, "project")
    pq.write_table(pa.Table.from_pylist(rows), manifest)
    project.mkdir()
    names = [f"b{number}" for number in range(options.backbones)]
    backbones = [backbone.model_copy(update={"name": name}) for name in names]
    with _job_server() as dashboard:
        yield Starts(project, dashboard, manifest, backbones)


@contextmanager
def _job_server() -> Iterator[str]:
    """Provides the address of a job server on loopback, which needs the token of this process."""
    dashboard, agent = free_port(), free_port()
    # With --block, so that it can be ended alone: `ray stop` would end every Ray there is.
    start = ["ray", "start", "--head", "--block", "--node-ip-address=127.0.0.1"]
    start += ["--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"]
    start += [f"--dashboard-agent-listen-port={agent}", f"--port={free_port()}"]
    silent = subprocess.DEVNULL
    head = subprocess.Popen(start, stdout=silent, stderr=silent, start_new_session=True)
    try:
        while not (_listens(dashboard) and _listens(agent)):
            if head.poll() is not None:
                raise UserError("ray start failed; run it by hand to see why.")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{dashboard}"
    finally:
        os.killpg(head.pid, signal.SIGKILL)  # nothing of it is of use any more
        head.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    main()
