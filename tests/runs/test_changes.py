"""Changes of a config and its files, in words."""

from __future__ import annotations

from typing import Any

import pytest

from sparc_dist.runs.changes import config_changes, input_changes

PETS = {"name": "pets", "classes": ["cat", "dog"], "prompts": {"tau2": 0.05}}
CARS = {"name": "cars", "classes": ["bus"], "prompts": {"tau2": 0.05}}


def config(*datasets: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"datasets": list(datasets), "seed": 0, "llm": None} | changes


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (config(PETS), config(PETS), []),
        (config(PETS), config(PETS, seed=1), ["seed: 0 → 1"]),
        (config(PETS), config(PETS, llm="m"), ["llm: none → m"]),
        (config(PETS), config(PETS | {"classes": ["cat", "dog", "clock"]}), ["classes: + clock"]),
        (config(PETS), config(PETS | {"classes": ["clock", "dog"]}), ["classes: + clock, − cat"]),
        (config(PETS), config(PETS | {"classes": ["dog", "cat"]}), ["classes: in another order"]),
        (config(PETS), config(PETS | {"prompts": {"tau2": 0.1}}), ["prompts.tau2: 0.05 → 0.1"]),
        (config(PETS), config(PETS, CARS), ["datasets: + cars"]),
        (config(PETS, CARS), config(CARS), ["datasets: − pets"]),
        (
            config(PETS, CARS),
            config(PETS, CARS | {"classes": ["bus", "van"]}),
            ["cars.classes: + van"],
        ),
    ],
)
def test_a_change_of_the_config(old: Any, new: Any, told: list[str]) -> None:
    assert list(config_changes(old, new)) == told


def test_many_new_classes_are_counted() -> None:
    names = [f"n{number}" for number in range(12)]
    (told,) = config_changes(config(PETS), config(PETS | {"classes": names}))
    assert told == "classes: + n0, n1, n2, n3, n4 and 7 more, − cat, dog"


def test_changed_files_are_named_without_their_hashes() -> None:
    old = {"a.txt": "ab12", "b.txt": "cd34", "c.txt": "ef56", "only-old.txt": "78"}
    new = {"a.txt": "ab12", "b.txt": "other", "c.txt": None, "only-new.txt": "9a"}
    told = ["b.txt: changed since the run", "c.txt: missing"]
    assert list(input_changes(old, new)) == told
