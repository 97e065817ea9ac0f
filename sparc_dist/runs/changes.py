"""The changes between a run and what is asked for now, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN = 5  # items that were added or removed


def config_changes(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yields where two configs differ: "classes: + clock", "shard_size: 256 → 64"."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from config_changes(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))
    elif old == new:
        return
    elif _have_names(old) and _have_names(new):
        yield from _sections(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        yield f"{path}: {_items(old, new) or f'{_short(old)} → {_short(new)}'}"
    else:
        yield f"{path}: {_short(old)} → {_short(new)}"


def input_changes(old: Mapping[str, str | None], new: Mapping[str, str | None]) -> Iterator[str]:
    """Yields the files whose hashes differ; one that only one of them reads is in its config."""
    for url in sorted({*old} & {*new}):
        if old[url] != new[url]:
            yield f"{url}: {'missing' if new[url] is None else 'changed since the run'}"


def _have_names(value: Any) -> bool:
    """Whether a value is a list of data sets or backbones."""
    return isinstance(value, list) and all(isinstance(v, dict) and "name" in v for v in value)


def _sections(old: list[Any], new: list[Any], path: str) -> Iterator[str]:
    """Yields the changes of sections with names; the name of the only one is left out."""
    before, after = ({section["name"]: section for section in part} for part in (old, new))
    if items := _items([*before], [*after]):
        yield f"{path}: {items}"
    for name in before:
        if name in after:
            where = "" if len(old) == len(new) == 1 else name
            yield from config_changes(before[name], after[name], where)


def _items(old: list[Any], new: list[Any]) -> str:
    """Returns what was added to and removed from a list; nothing if neither was."""
    if sorted(map(repr, old)) == sorted(map(repr, new)):
        return "in another order" if old != new else ""
    signs = [("+", [v for v in new if v not in old]), ("−", [v for v in old if v not in new])]
    return ", ".join(f"{sign} {_some(values)}" for sign, values in signs if values)


def _some(values: list[Any]) -> str:
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(map(_short, values[:SHOWN])) + more


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
