"""Every benchmark runs at a tiny size, as a user runs it, and prints its figures.

No test checks a time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparc_dist.runs import STAGES

pytestmark = [pytest.mark.ray, pytest.mark.slow]

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run(name: str, *options: object, ray: str = "") -> tuple[str, dict[str, float]]:
    """Returns the title and the figures of a benchmark. ray: the address of a Ray to join."""
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", *map(str, options)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "RAY_ADDRESS": ray},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    title, *lines = done.stdout.strip().splitlines()
    figures = [line.rsplit(":", 1) for line in lines]
    return title, {name.strip(): float(value) for name, value in figures}


def ratios(figures: dict[str, float]) -> list[str]:
    """Returns the names of the ratios, and checks that these are positive and finite."""
    found = [name for name in figures if " / " in name]
    assert all(0 < figures[name] < float("inf") for name in found)
    return found


def test_map_phase(started: str, scenes: Path) -> None:
    sizes = ("--model", "sparc-tiny", "--batch", 4, "--shards", 3, "--rounds", 1)
    title, figures = run("map_phase", *sizes, "--photos", scenes, ray=started)
    assert "12 photos under sparc-tiny" in title
    assert ratios(figures) == [
        "images/s, map phase / bare loop",
        "images/s, map phase / decoding alone on all cores",
    ]
    assert figures["GFLOP/s per core (plan --core-gflops)"] > 0
    assert figures["photos decoded per second and core (plan --decodes)"] > 0


def test_reduce_phase(started: str) -> None:
    sizes = ("--images", 300, "--classes", 8, "--prompts", 30)
    title, figures = run("reduce_phase", *sizes, ray=started)
    assert "300 × (8 + 8 + 30) scores" in title
    passes = [f"CPU time, {stage.replace('_', ' ')} / reading" for stage in STAGES]
    on_ray = "time, reduce on Ray from and to storage / plain NumPy"
    assert ratios(figures) == [on_ray, *passes]
    assert figures["largest difference in a final score"] < 1e-5


def test_start() -> None:
    title, figures = run("start", "--model", "sparc-tiny", "--images", 2, "--rounds", 1)
    assert "1 × sparc-tiny on 2 images" in title
    assert ratios(figures) == [
        "time, ray job submit to the first scored shard / bare script",
        "time, run in one process / bare script",
    ]


def test_service(started: str) -> None:
    title, figures = run("service", "--seconds", 0.5, "--repeats", 2, ray=started)
    assert "28 classes" in title
    assert len(ratios(figures)) == 5
    assert all(figures[f"requests/s at concurrency {number}"] > 0 for number in (1, 8, 32))


def test_scale(started: str) -> None:
    title, figures = run("scale", "--shards", 16, "--shard", 4, ray=started)
    assert "64 made-up images in 16 shards" in title
    assert len(ratios(figures)) == 3
    assert all(0 < value < float("inf") for value in figures.values())
    # Six files of each shard, and some of the whole.
    assert 6 * 16 < figures["objects per million images"] * 64 / 2**20 < 20 * 16


def test_accelerator(started: str) -> None:
    sizes = ("--side", 8, "--shard", 8, "--batch", 4, "--seconds", 0.01, "--rounds", 1)
    title, figures = run("accelerator", *sizes, ray=started)
    assert "2500 images/s" in title
    assert all(figures[name] <= 1 for name in ratios(figures))
    assert len(figures) == 4
