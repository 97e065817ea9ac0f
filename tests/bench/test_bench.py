"""Every benchmark runs at its smallest size and prints its figures. No test checks a time."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import pytest

from sparc_dist.bench.start import PARTS
from sparc_dist.cli import main
from sparc_dist.runs import STAGES

pytestmark = pytest.mark.slow  # each starts models or Ray several times


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(capsys)


class Bench:
    """Runs the command in this process, on the tests' Ray."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[str, dict[str, float]]:
        """Returns the title and the figures of one benchmark; keeps its tables in ``others``."""
        assert main(["bench", "--quick", *map(str, arguments)]) == 0
        first, *self.others = self._capsys.readouterr().out.strip().split("\n\n")
        title, *lines = first.splitlines()
        figures = [line.rsplit(":", 1) for line in lines]
        return title, {name.strip(): float(value) for name, value in figures}


def ratios(figures: dict[str, float]) -> list[str]:
    """Returns the names of the ratios, and checks that these are positive and finite."""
    found = [name for name in figures if " / " in name]
    assert all(0 < figures[name] < math.inf for name in found)
    return found


def test_reduce_compares_both_ways_and_they_agree(bench: Bench, cluster: str) -> None:
    title, figures = bench("reduce")
    assert "300 × (8 + 8 + 30) scores" in title
    assert ratios(figures) == ["time, pipeline / plain NumPy"]
    assert figures["largest difference in a final score"] < 1e-5
    title, *lines = bench.others[0].splitlines()
    assert "300 × (8 + 8 + 30) scores" in title
    passes = dict(line.strip().rsplit(":", 1) for line in lines)
    assert [*passes] == [f"{stage.replace('_', ' ')} / reading" for stage in STAGES]
    assert all(float(ratio) > 0 for ratio in passes.values())


def test_decode_compares_once_with_nine_times(bench: Bench) -> None:
    title, figures = bench("decode")
    (table,) = bench.others
    head, *rows = [re.split(r" {2,}", line.strip()) for line in table.splitlines()[1:5]]
    assert head[3:7] == ["full", "scaled", "scaled / full", "difference"]
    assert [row[:3] for row in rows] == [
        ["500 × 375", "224", "1/1"],
        ["500 × 375", "448", "1/1"],
        ["1632 × 1224", "224", "1/2"],
    ]
    assert [row[6] for row in rows[:2]] == ["0.00", "0.00"]
    assert 0 < float(rows[2][6]) < 1
    assert (rows[0][7] == "–") == ("djpeg is not installed" in table)
    assert "4 photos to 224, 336, 448 pixels" in title
    assert ratios(figures) == ["time, once / nine times"]
    assert figures["photos per second and core (plan --decodes)"] > 0


def test_decode_uses_the_readable_photos_of_a_folder(
    bench: Bench, scenes: Path, tmp_path: Path
) -> None:
    (tmp_path / "below").mkdir()
    for number, photo in enumerate(sorted(scenes.iterdir())[:3]):
        shutil.copy(photo, tmp_path / "below" / f"{number}.JPG")
    (tmp_path / "broken.jpg").write_text("no photo")
    (tmp_path / "notes.txt").write_text("no image")
    title, _ = bench("decode", "--images", tmp_path)
    assert "decode of 3 photos" in title


def test_a_folder_without_photos_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "decode", "--images", str(tmp_path)]) == 2
    assert "There is no image below" in capsys.readouterr().err


def test_map_compares_the_phase_with_a_bare_loop(bench: Bench, cluster: str) -> None:
    title, figures = bench("map")
    assert "24 photos under sparc-tiny" in title
    assert ratios(figures) == ["images/s, map phase / loop"]
    assert figures["lowest of 1 rounds"] == figures["highest of 1 rounds"]
    assert 0 < figures["if decoding took extra time"] < math.inf
    assert math.isfinite(figures["start-up of a scorer, in images"])
    assert figures["GFLOP/s per core (plan --core-gflops)"] > 0


def test_features_compares_local_with_global(bench: Bench) -> None:
    title, figures = bench("features")
    assert "4 images under sparc-tiny with 30 prompts" in title
    assert len(ratios(figures)) == 3
    assert all(figures[f"MB above the loaded model, {name}"] >= 0 for name in ("global", "both"))


@pytest.mark.usefixtures("cluster")
def test_accelerator_compares_two_shards_at_a_time_with_one(bench: Bench) -> None:
    title, figures = bench("accelerator")
    assert "shards of 8 in batches of 4, 11 prompts" in title
    busy = [figure for name, figure in figures.items() if name.startswith("% busy at")]
    assert len(busy) == 6
    assert all(0 < figure <= 100 for figure in busy)


def test_units_write_the_same_bytes_both_ways(bench: Bench, cluster: str) -> None:
    title, figures = bench("units")
    assert "2 units of a small model on 16 photos" in title
    assert ratios(figures) == ["time, together / one after the other"]
    assert figures["different files of final scores, of 4"] == 0


def test_store_compares_every_choice_with_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "store", "--quick"]) == 0
    title, _, *lines = capsys.readouterr().out.strip().splitlines()
    assert "300 images × (8 + 8 + 30) scores and 16" in title
    rows = {(cells[0], cells[1]): cells[2:] for cells in map(str.split, lines)}
    assert len(rows) == 6
    sizes = {choice: int(cells[0].replace(",", "")) for choice, cells in rows.items()}
    for store in ("both", "scores", "embeddings"):
        assert sizes[store, "fp16"] < sizes[store, "fp32"] <= sizes["both", "fp32"]
    moved = {choice: float(cells[-1]) for choice, cells in rows.items()}
    assert moved["both", "fp32"] == moved["scores", "fp32"] == 0
    assert 0 < moved["scores", "fp16"] < 0.1
    assert moved["embeddings", "fp32"] < 1e-4


@pytest.mark.usefixtures("cluster")
def test_serve_compares_the_service_with_bare_loops(bench: Bench) -> None:
    title, figures = bench("serve")
    assert "service of sparc-tiny with 28 classes" in title
    assert len(ratios(figures)) == 4
    assert all(figures[f"requests/s at concurrency {number}"] > 0 for number in (1, 4))
    assert 0 <= figures["requests lost with a killed replica (goal: at most 4)"] <= 4
    assert math.isfinite(figures["seconds until it is well again"])


def test_an_unknown_benchmark_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "speed"])
    assert "units" in capsys.readouterr().err


def test_start_compares_jobs_and_a_small_job_with_a_bare_script(bench: Bench) -> None:
    title, figures = bench("start")
    assert "sparc-tiny, 27 texts, shards of 4 images" in title
    assert ratios(figures) == [
        "first scored shard of 2 backbones, job / bare script",
        "small job of 8 images in one process / bare script",
    ]
    head, *lines = bench.others[0].splitlines()
    assert head.split()[-2:] == ["2", "backbones"]
    jobs, scripts = lines[: len(PARTS) + 1], lines[len(PARTS) + 2 :]
    for line in jobs:
        edges = re.findall(r"([\d.]+) to +([\d.]+)", line)
        assert len(edges) == 1
        assert all(float(start) <= float(end) for start, end in edges)
    assert [line.split()[0] for line in scripts][:3] == ["imports", "weights", "texts"]


def test_scale_runs_without_images(bench: Bench, cluster: str) -> None:
    title, figures = bench("scale")
    assert "512 made-up images in 128 shards" in title
    assert all(0 < value < math.inf for value in figures.values())
    # Six files of each shard, one table of its markers, and a few of the whole.
    assert 6 * 2**18 < figures["objects per million images"] < 10 * 2**18
