"""README.md and docs/: links resolve, paths exist, commands parse, configs validate, and the tables
of fields and messages agree with the code."""

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

import sparc_dist
from sparc_dist.cli.command_line import COMMANDS, parser
from sparc_dist.config import (
    DATASET_KINDS,
    BackboneConfig,
    Config,
    DatasetConfig,
    LLMConfig,
    PromptsConfig,
    ResourcesConfig,
    parse,
)
from sparc_dist.core import DuoOptions, Method
from sparc_dist.research import EXPERIMENTS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SHELL_BLOCKS = ["pip install . && sparc-dist demo\n", "pip install '.[test]' && pytest\n"]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(
    r"(?<![\w/.~-])(?:(?:sparc_dist|benchmarks|jobs|tests|docs|examples)/[\w./-]*\w"
    r"|(?:cluster|mkdocs|pyproject)\.(?:yaml|yml|toml))"
)
MODULE = re.compile(r"(?<![\w/.-])sparc_dist(?:\.[a-z_]\w*)+")

END_OF_SCALAR = "\n...\n"  # PyYAML's

#: A config without anything that may be left out.
DATASET = {"name": "pets", "images": "pets.csv", "classes": ["cat"]}
MINIMAL = {"output": "runs/pets", "datasets": [DATASET]}
#: The sections of configuration.md, each with its type and what it cannot do without.
SECTIONS: dict[str, tuple[type, dict[str, Any]]] = {
    "Top level": (Config, MINIMAL),
    "Data set": (DatasetConfig, DATASET),
    "Prompts": (PromptsConfig, {"source": "all-pairs"}),
    "LLM": (LLMConfig, {"base_url": "http://localhost/v1", "model": "m"}),
    "Backbone": (BackboneConfig, {"name": "tiny", "model": "sparc-tiny"}),
    "Method": (Method, {}),
    "Duo": (DuoOptions, {}),
    "Resources": (ResourcesConfig, {}),
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def fences(text: str, *languages: str) -> list[str]:
    """Returns the contents of the fenced blocks in these languages."""
    return [body for language, body in FENCE.findall(text) if language in languages]


def indented_lines(text: str) -> list[str]:
    """Returns the lines of indented code blocks."""
    lines = FENCE.sub("", text).splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


def slug(heading: str) -> str:
    """Returns the anchor of a heading, as both GitHub and MkDocs make it."""
    plain = re.sub(r"[^\w\s-]", "", heading).strip().lower()
    return re.sub(r"\s+", "-", plain)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"(?m)^#+ (.+)$", FENCE.sub("", page.read_text()))
    return {slug(heading) for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(INLINE.sub("", FENCE.sub("", page.read_text()))):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = page.parent / path if path else page
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            yield link


@every_page
def test_links_resolve(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_links_of_the_site_stay_in_docs() -> None:
    for page in PAGES[1:]:
        for link in LINK.findall(INLINE.sub("", page.read_text())):
            if "://" not in link and not link.startswith("#"):
                assert (page.parent / link.partition("#")[0]).resolve().is_relative_to(DOCS), link


@every_page
def test_paths_and_modules_exist(page: Path) -> None:
    text = page.read_text()
    assert [path for path in PATH.findall(text) if not (ROOT / path).exists()] == []
    exports = {f"sparc_dist.{name}" for name in (*sparc_dist.__all__, "sha256")}  # that of seals
    found = {*MODULE.findall(text)} - exports
    names = {name: ROOT / name.replace(".", "/") for name in found}
    assert [
        name for name, at in names.items() if not (at.is_dir() or at.with_suffix(".py").exists())
    ] == []


def test_architecture_names_every_room() -> None:
    text = (DOCS / "architecture.md").read_text()
    rooms = [at.parent.relative_to(ROOT) for at in (ROOT / "sparc_dist").glob("*/__init__.py")]
    assert [str(room) for room in rooms if f"| `{room}` |" not in text] == []


def commands(line: str) -> Iterator[list[str]]:
    """Yields the arguments of every call of the command line in a shell line."""
    for part in re.split(r"&&|;|\s\|\s", re.sub(r"\s#.*", "", line)):
        call = re.search(r"(?:^|\s)(?:sparc-dist|python -m sparc_dist)(?:\s+(.*))?$", part.strip())
        if call and "…" not in part:
            yield shlex.split(call[1] or "")


def problem_with(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Returns what the parser says about arguments; nothing if they are right."""
    try:
        parser().parse_args(arguments)
    except SystemExit as stop:
        return capsys.readouterr().err if stop.code else ""
    return ""


@every_page
def test_commands_in_code_blocks_parse(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = page.read_text()
    lines = indented_lines(text)
    lines += [line for body in fences(text, "sh", "text", "") for line in body.splitlines()]
    for line in lines:
        for arguments in commands(line):
            assert problem_with(arguments, capsys) == "", line


@every_page
def test_commands_in_sentences_are_known(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code in INLINE.findall(FENCE.sub("", page.read_text())):
        for arguments in commands(code):
            problem = problem_with(arguments, capsys) if arguments else ""
            # A sentence may name a command without what it needs.
            assert not problem or "arguments are required" in problem, code


@every_page
def test_configs_validate(page: Path) -> None:
    for block in fences(page.read_text(), "yaml"):
        raw = yaml.safe_load(block)
        prompts = [DATASET | {"prompts": raw.pop("prompts")}] if "prompts" in raw else [DATASET]
        whole = {"output", "datasets"} <= {*raw}
        parse(raw if whole else MINIMAL | {"datasets": prompts} | raw, name_of(page))


@every_page
def test_python_snippets_import_what_exists(page: Path) -> None:
    for block in fences(page.read_text(), "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("sparc_dist"):
                module = import_module(str(node.module))
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_the_examples_of_the_python_page_run(
    tmp_path: Path, scenes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    for path in sorted(scenes.iterdir())[:12]:
        shutil.copy(path, tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, block in enumerate(fences((DOCS / "python.md").read_text(), "python")):
        exec(compile(block, f"block {number} of python.md", "exec"), names)
    assert len(names["images"]) == 12
    assert names["duo"].shape == (100, 3)


def test_readme_is_short_and_begins_with_the_two_commands() -> None:
    text = PAGES[0].read_text()
    assert len(text.splitlines()) <= 130
    assert re.findall(r"^```(?:sh|bash|console|shell)\n(.*?)^```", text, re.S | re.M) == (
        SHELL_BLOCKS
    )


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("index.md", [f"sparc-dist {module.__name__.rpartition('.')[2]}" for module in COMMANDS]),
        ("experiments.md", list(EXPERIMENTS)),
        ("datasets.md", list(DATASET_KINDS)),
    ],
)
def test_every_command_experiment_and_kind_has_a_row(page: str, names: list[str]) -> None:
    text = (DOCS / page).read_text()
    assert [name for name in names if f"\n| `{name}` |" not in text] == []


def documented(section: str) -> dict[str, tuple[str, str, str]]:
    """Returns type, default and meaning of every field in a section's table."""
    text = (DOCS / "configuration.md").read_text()
    body = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line) for line in body.splitlines() if line.startswith("| `")]
    return {row[1].strip(" `"): (row[2].strip(), row[3].strip(), row[4].strip()) for row in rows}


def fields_of(kind: type) -> dict[str, tuple[Any, ...]]:
    """Returns the type of every field, and its limits."""
    if issubclass(kind, BaseModel):
        return {name: (f.annotation, *f.metadata) for name, f in kind.model_fields.items()}
    return {name: (hint,) for name, hint in get_type_hints(kind).items()}


def sections_below(kind: type) -> set[type]:
    """Returns a section's type and those of the sections in it."""
    found = {kind}
    for annotation, *_ in fields_of(kind).values():
        for inner in (annotation, *types_in(annotation)):
            if isinstance(inner, type) and _is_section(inner):
                found |= sections_below(inner)
    return found


def types_in(annotation: Any) -> Iterator[Any]:
    for inner in get_args(annotation):
        yield inner
        yield from types_in(inner)


def _is_section(kind: type) -> bool:
    return issubclass(kind, BaseModel) or is_dataclass(kind)


def shown(value: Any) -> str:
    """Returns a default as configuration.md shows it; of a section, a link to its table."""
    first = value[0] if isinstance(value, tuple) else value
    for section, (kind, _) in SECTIONS.items():
        if isinstance(first, kind):
            return f"](#{slug(section)})"
    if value is None:
        return "none"
    plain = yaml.safe_dump(
        list(value) if isinstance(value, tuple) else value, default_flow_style=True
    )
    return f"`{plain.removesuffix(END_OF_SCALAR).strip()}`"


def test_configuration_has_a_table_for_every_section() -> None:
    assert sections_below(Config) == {kind for kind, _ in SECTIONS.values()}


@pytest.mark.parametrize("section", SECTIONS)
def test_configuration_lists_every_field(section: str) -> None:
    assert list(documented(section)) == list(fields_of(SECTIONS[section][0]))


@pytest.mark.parametrize("section", SECTIONS)
def test_configuration_shows_the_right_defaults(section: str) -> None:
    kind, needed = SECTIONS[section]
    made: Any = TypeAdapter(kind).validate_python(needed)
    # Without a source the kind of data set decides; all others are required.
    required = {*needed} - {"source", "classes"}
    for name, (_, default, _) in documented(section).items():
        value = None if name == "classes" else getattr(made, name)
        assert ("required" if name in required else shown(value)) in default, name


@pytest.mark.parametrize("section", SECTIONS)
def test_configuration_shows_choices_and_limits(section: str) -> None:
    for name, annotations in fields_of(SECTIONS[section][0]).items():
        for value in choices_and_limits(annotations):
            assert f"{value}" in documented(section)[name][0], name


def choices_and_limits(annotations: tuple[Any, ...]) -> Iterator[str | float]:
    """Yields the values of Literals, and the numbers that bound a field."""
    for item in (*annotations, *types_in(annotations[0])):
        for limit in ("ge", "gt", "le", "lt"):
            if isinstance(bound := getattr(item, limit, None), int | float):
                yield bound
        if isinstance(item, str):  # an argument of Literal
            yield item


@cache
def strings_of_the_package() -> tuple[str, ...]:
    """Returns every string in the code, with … for what is filled in."""
    found = []
    for file in sorted((ROOT / "sparc_dist").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", "") for part in node.values]
                found.append("".join(part if isinstance(part, str) else "…" for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return tuple(found)


def documented_messages() -> list[str]:
    text = (DOCS / "troubleshooting.md").read_text()
    section = text.partition("\n## Messages\n")[2].partition("\n## ")[0]
    cells = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    return [message for cell in cells for message in INLINE.findall(cell)]


@pytest.mark.parametrize("message", documented_messages())
def test_messages_are_those_of_the_code(message: str) -> None:
    pattern = re.compile(".*".join(map(re.escape, message.split("…"))), re.S)
    assert any(pattern.search(text) for text in strings_of_the_package())


def test_the_tests_of_guarantees_exist() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 20
    for path, name in named:
        assert f"def {name}" in (ROOT / path).read_text(), (path, name)
