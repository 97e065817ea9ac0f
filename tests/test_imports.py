"""Importing the package changes nothing in a process, loads little, and meets its declarations."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sparc_dist"
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: Imports every module of the package in a process that has loaded the libraries already: what
#: these change by themselves (torch, open_clip and Ray each set a variable) is not ours.
IMPORT_ALL = """
import importlib, json, logging, os, pkgutil, sys
import matplotlib, open_clip, PIL.Image, PIL.ImageFile, ray.data, ray.serve, torch

def state():
    return {
        "environment": dict(os.environ),
        "largest image": PIL.Image.MAX_IMAGE_PIXELS,
        "truncated images": PIL.ImageFile.LOAD_TRUNCATED_IMAGES,
        "levels": [logging.getLogger(name).level for name in ("", "PIL", "ray", "sparc_dist")],
        "handlers": list(map(repr, logging.getLogger().handlers)),
        "threads of torch": torch.get_num_threads(),
        "backend of matplotlib": matplotlib.get_backend(auto_select=False),
        "excepthook": sys.excepthook is sys.__excepthook__,
    }

before = state()
import sparc_dist
modules = [module.name for module in pkgutil.walk_packages(sparc_dist.__path__, "sparc_dist.")]
for name in modules:
    if not name.endswith(".__main__"):
        importlib.import_module(name)
after = state()
changes = {key: [before[key], after[key]] for key in before if before[key] != after[key]}
print(json.dumps({"modules": modules, "changes": changes}))
"""


def in_a_new_process(code: str) -> Any:
    """Runs code in a fresh Python; returns what it prints last, as JSON.

    Its environment is nearly empty: a variable that the tests have set could not be set again.
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ},
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_importing_every_module_changes_nothing_in_the_process() -> None:
    found = in_a_new_process(IMPORT_ALL)
    assert found["changes"] == {}
    assert {f"sparc_dist.{room}" for room in ROOMS} < set(found["modules"])


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("sparc_dist", "numpy pydantic torch open_clip ray PIL"),
        ("sparc_dist.api", "torch open_clip ray matplotlib"),
        ("sparc_dist.cli", "torch open_clip ray PIL matplotlib"),
        ("sparc_dist.runner", "torch open_clip ray PIL matplotlib"),
        ("sparc_dist.runs", "torch ray PIL"),
        ("sparc_dist.backbones", "torch open_clip ray PIL"),
        ("sparc_dist.config", "torch ray PIL pyarrow.dataset"),
        ("sparc_dist.core", "torch ray PIL pyarrow fsspec"),
        ("sparc_dist.pipeline", "torch ray PIL"),
        # What a worker imports that prepares, decodes or writes, and what the driver does.
        ("sparc_dist.pipeline.prepare", "torch open_clip ray PIL matplotlib"),
        ("sparc_dist.pipeline.steps", "torch open_clip ray matplotlib aiohttp"),
        ("sparc_dist.pipeline.on_ray", "torch open_clip ray.data matplotlib"),
        ("sparc_dist.pipeline.scheduling", "torch open_clip ray matplotlib"),
        ("sparc_dist.serving", "torch ray PIL fastapi"),
    ],
)
def test_a_room_does_not_load_what_it_does_not_need(module: str, unwanted: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    assert not set(unwanted.split()) & set(in_a_new_process(code))


def test_the_top_of_the_package_holds_rooms_and_little_else() -> None:
    entries = {path for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    files = {path.name for path in entries if path.is_file()}
    modules = {"__init__.py", "__main__.py", "api.py", "errors.py", "runner.py"}
    assert files == modules | {"py.typed"}
    assert {path.name for path in entries if path.is_dir()} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_what_belongs_there(room: str) -> None:
    module = importlib.import_module(f"sparc_dist.{room}")
    text = module.__doc__ or ""
    lines = [line for line in text.splitlines() if line.strip()]
    assert 2 <= len(lines) <= 4, "two to four lines about the room"
    missing = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
    assert not missing


def imported(folders: Iterable[str]) -> Iterator[str]:
    """Yields the top-level names of all packages that the folders' modules import."""
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def declared(*extras: str) -> set[str]:
    """Returns the names of the distributions that pyproject.toml requires."""
    optional = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in optional[extra])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


@pytest.mark.parametrize(
    ("folders", "extras"),
    [(("sparc_dist", "jobs"), ("heic", "serve")), (("examples", "tests"), ("test",))],
    ids=["package", "tests"],
)
def test_every_package_that_is_imported_is_declared(
    folders: tuple[str, ...], extras: tuple[str, ...]
) -> None:
    ours = {"sparc_dist", "tests", "jobs"}
    distributions = packages_distributions()
    for name in {*imported(folders)} - sys.stdlib_module_names - ours:
        # That of an extra may not be installed.
        owners = {canonicalize_name(owner) for owner in distributions.get(name, [name])}
        assert owners & declared(*extras), f"{name} is imported, but not declared"
