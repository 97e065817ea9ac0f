"""Config files: YAML in, a checked Config with absolute paths out.

Relative paths are relative to the config file's folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sparc_dist import storage
from sparc_dist.config.presets import OPENAI
from sparc_dist.config.schema import KEYS_IN_URL, BackboneConfig, Config, is_file_name
from sparc_dist.errors import UserError, quoted
from sparc_dist.storage import is_remote

#: The config of a project that has one.
USUAL = "sparc.yaml"
#: In the path of the working folder that Ray unpacks for a job.
RAYS_COPY = "/working_dir_files/"


def find_config(path: str | None) -> str:
    """The config that was named, or the one that lies where a job looks for it."""
    found = path or os.environ.get("SPARC_CONFIG") or USUAL
    if found == USUAL and not os.path.exists(USUAL):
        raise UserError(
            f"There is no config: name one, or set SPARC_CONFIG, or write {USUAL} here with at "
            "least `output:` and `datasets:`; the paper's nine backbones need no mention, and "
            "sparc-dist run --help shows an example."
        )
    return found


def load_config(path: str, output: str | None = None) -> Config:
    """Read and check a YAML config; ``output`` replaces the one in the file."""
    try:
        content = storage.read_bytes(path)
    except FileNotFoundError:
        raise UserError(f"There is no config file {path}; check the path.") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; name a YAML file in it.") from None
    try:
        raw = yaml.safe_load(content)
    except Exception as error:  # a tag with a wrong value raises nearly anything in PyYAML
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UserError(f"{path} is not valid YAML{line}; correct it and try again.") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path} holds no config; it must be a YAML mapping with `output:` …")
    if output is not None:
        raw["output"] = os.path.abspath(output) if not is_remote(output) else output
    base = storage.parent(path) if is_remote(path) else str(Path(path).resolve().parent)
    return resolve(parse(raw, path), base)


def parse(raw: dict[str, Any], where: str) -> Config:
    """Check a raw config; an error names every field that is wrong, in one sentence each."""
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        # A list whose items are wrong is then also called too short; once is enough.
        problems = [dict(problem) for problem in error.errors()]
        wrong = [p for p in problems if p["type"] != "too_short" or not p["input"]]
        lines = [_sentence(problem) for problem in wrong or problems]
        raise UserError(f"{where}: " + " ".join(lines)) from None


def resolve(config: Config, base: str) -> Config:
    """The same config with every path made absolute, for workers have other working folders."""

    def at(url: str) -> str:
        full = storage.absolute(url, base)
        if RAYS_COPY in full:
            raise UserError(
                f"{quoted(url)} would lie in the copy of the working folder that Ray made for this "
                "job and deletes after it; write an absolute path or a URL."
            )
        return full

    datasets = []
    for dataset in config.datasets:
        prompts = dataset.prompts.model_copy(
            update={
                key: at(url)
                for key in ("labels", "sets", "descriptive")
                if (url := getattr(dataset.prompts, key)) is not None
            }
        )
        update: dict[str, Any] = {"images": at(dataset.images), "prompts": prompts}
        if isinstance(dataset.classes, str):
            update["classes"] = at(dataset.classes)
        datasets.append(dataset.model_copy(update=update))
    folder = None if config.weights_folder is None else at(config.weights_folder)
    backbones = [_with_weights_at(at, backbone, folder) for backbone in config.backbones]
    return config.model_copy(
        update={
            "output": at(config.output),
            "datasets": tuple(datasets),
            "backbones": tuple(backbones),
            "weights_folder": folder,
        }
    )


def _with_weights_at(
    at: Callable[[str], str], backbone: BackboneConfig, folder: str | None
) -> BackboneConfig:
    """A backbone whose weights, where they are a file, are named in full."""
    files = dict(OPENAI.values())
    weights = backbone.weights
    if folder is not None and weights == "openai" and backbone.model in files:
        weights = storage.join(folder, files[backbone.model])
    elif weights is not None and is_file_name(weights):
        weights = at(weights)
    return backbone.model_copy(update={"weights": weights})


def _sentence(problem: dict[str, Any]) -> str:
    """A pydantic problem as a sentence with the field and the remedy."""
    field = ".".join(map(_key, problem["loc"])) or "config"
    if problem["type"] == "extra_forbidden":
        return f"{field}: unknown key; remove it or check its spelling."
    if problem["type"] == "missing":
        return f"{field}: is missing; add it."
    message = problem["msg"].removeprefix("Value error, ")
    if "llm" in problem["loc"]:
        # A key may stand anywhere in there by mistake; so nothing of it is repeated.
        rules = {"base_url": "must be http(s)://host/path", "key_env": "must name a variable"}
        return f"{field}: {rules.get(str(problem['loc'][-1]), message)}."
    if problem["type"] == "string_pattern_mismatch":
        message = "must be letters, digits and . _ @ + - only, for it names a folder"
    given = problem["input"] if KEYS_IN_URL not in message else None
    shown = f" (it is {quoted(given)})" if isinstance(given, str | int | float | bool) else ""
    return f"{field}: {message}{shown}."


def _key(part: object) -> str:
    """A key as it is written, unless that would break the line or fill the screen."""
    text = str(part)
    return text if text.isprintable() and len(text) <= 80 else quoted(text)
