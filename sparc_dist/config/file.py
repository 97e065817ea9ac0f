"""Configs from files, from Python and of ``label``: checked, and with absolute paths.

Relative paths are relative to the config file's folder, or else to the current one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml
from pydantic import ValidationError

from sparc_dist import storage
from sparc_dist.config.backbone import (
    EVERYWHERE,
    OPENAI,
    SET_FOLDER,
    SET_WEIGHTS,
    TINY,
    WEIGHTS,
    WRITE_MODEL,
    BackboneConfig,
    is_file_name,
)
from sparc_dist.config.names import KEYS_IN_URL
from sparc_dist.config.schema import Config
from sparc_dist.errors import Option, Terms, UserError, did_you_mean, quoted
from sparc_dist.storage import is_remote

#: The config file that is read if none is named.
DEFAULT_CONFIG = "sparc.yaml"
#: The most bytes of a config file.
LARGEST = 2**22
#: Part of the path of the working folder that Ray unpacks for a job.
RAY_WORKING_DIR = "/working_dir_files/"
#: The model that ``label`` uses if none is named.
LABEL_MODEL = "ViT-B-16-quickgelu"
#: The names of the only data set and backbone of such a run.
LABEL_UNIT = ("images", "model")


def find_config(path: str | None) -> str:
    """Returns the path of the config: ``path``, SPARC_CONFIG, or sparc.yaml in this folder."""
    found = path or os.environ.get("SPARC_CONFIG") or DEFAULT_CONFIG
    if found == DEFAULT_CONFIG and not os.path.exists(DEFAULT_CONFIG):
        raise UserError(
            f"There is no config: name one, or set SPARC_CONFIG, or write {DEFAULT_CONFIG} here "
            "with at least `output:` and `datasets:`; `backbones:` defaults to the paper's nine, "
            "and sparc-dist run --help shows an example."
        )
    return found


def load_config(path: str, output: str | None = None) -> Config:
    """Reads and checks a YAML config; ``output`` replaces the one in the file."""
    try:
        content = storage.read_bytes(path, LARGEST)
    except FileNotFoundError:
        raise UserError(f"There is no config file {path}; check the path.") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; name a YAML file in it.") from None
    try:
        raw = yaml.safe_load(content)
    except Exception as error:  # PyYAML raises many types of errors for a tag with a wrong value
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        raise UserError(f"{path} is not valid YAML{line}; correct it and try again.") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path} contains no config; it must be a YAML mapping with `output:` …")
    if output is not None:
        raw["output"] = os.path.abspath(output) if not is_remote(output) else output
    base = storage.parent(path) if is_remote(path) else str(Path(path).resolve().parent)
    return resolve(parse(raw, path), base)


def parse(raw: dict[str, Any], where: str = "") -> Config:
    """Checks a raw config; the error of a wrong one has one sentence per wrong field.

    where: the file that it is from.
    """
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        problems = [dict(problem) for problem in error.errors()]
        # pydantic also reports a list as too short if its items are wrong; once is enough.
        relevant = [p for p in problems if p["type"] != "too_short" or not p["input"]]
        lines = [_problem_line(problem) for problem in relevant or problems]
        raise UserError(" ".join([f"{where}:", *lines] if where else lines)) from None


def resolve(config: Config, base: str) -> Config:
    """Returns the config with absolute paths, because workers have other working folders."""

    def absolute(url: str) -> str:
        full = storage.absolute(url, base)
        if RAY_WORKING_DIR in full:
            raise UserError(
                f"{quoted(url)} would be in Ray's copy of the working folder, which is deleted "
                "after the job; use an absolute path or a URL."
            )
        return full

    datasets = []
    for dataset in config.datasets:
        prompts = dataset.prompts.model_copy(
            update={
                key: absolute(url)
                for key in ("labels", "sets", "descriptive")
                if (url := getattr(dataset.prompts, key)) is not None
            }
        )
        images = dataset.images
        places = absolute(images) if isinstance(images, str) else tuple(map(absolute, images))
        update: dict[str, Any] = {"images": places, "prompts": prompts}
        if isinstance(dataset.classes, str):
            update["classes"] = absolute(dataset.classes)
        if dataset.background_file is not None:
            update["background"] = absolute(dataset.background_file)
        datasets.append(dataset.model_copy(update=update))
    folder = None if config.weights_folder is None else absolute(config.weights_folder)
    backbones = [_with_weights_at(absolute, backbone, folder) for backbone in config.backbones]
    return config.model_copy(
        update={
            "output": absolute(config.output),
            "datasets": tuple(datasets),
            "backbones": tuple(backbones),
            "weights_folder": folder,
            "labeler": None if config.labeler is None else absolute(config.labeler),
        }
    )


def label_config(
    images: Sequence[str],
    classes: Sequence[str],
    out: str,
    model: str = LABEL_MODEL,
    weights: str | None = None,
) -> Config:
    """Returns the config of some images, their classes and one model.

    images: photos, folders, patterns or URLs. weights: OpenAI's by default.
    """
    if weights is None and model != TINY:
        weights = "openai"
    dataset = {
        "name": LABEL_UNIT[0],
        "kind": "folder",
        "images": images[0] if len(images) == 1 else images,
        "classes": classes,
    }
    raw = {
        "output": out,
        "datasets": [dataset],
        "backbones": [{"name": LABEL_UNIT[1], "model": model, "weights": weights}],
        "max_error_share": 1,  # unreadable images have rows of their own
    }
    return resolve(parse(raw), os.getcwd())


def label_terms(images: str, classes: str, model: str, weights: str, out: str) -> Terms:
    """Returns the terms of a command or function, given what it calls each part of such a config.

    Its weights are on one machine.
    """
    return {
        Option("datasets.0.images"): images,
        Option("datasets.0.classes"): classes,
        Option("backbones.0"): model,
        Option("backbones.0.weights"): weights,
        Option("output"): out,
        Option(f"Backbone {LABEL_UNIT[1]}"): model,
        WRITE_MODEL: f"use {model}",
        WEIGHTS: weights,
        SET_WEIGHTS: f"here and name it with {weights}",
        SET_FOLDER: f"here and name it with {weights}",
        EVERYWHERE: f", or correct {weights}",
    }


def _with_weights_at(
    absolute: Callable[[str], str], backbone: BackboneConfig, folder: str | None
) -> BackboneConfig:
    """Returns the backbone with the absolute path of its weights if they are a file."""
    files = dict(OPENAI.values())
    weights = backbone.weights
    if folder is not None and backbone.tag == "openai" and backbone.model in files:
        if backbone.revision is not None:
            raise UserError(
                f"{backbone.place}: the weights {weights} are the hub's, and "
                "`weights_folder` has no revisions; remove one of the two."
            )
        weights = storage.join(folder, files[backbone.model])
    elif weights is not None and is_file_name(weights):
        weights = absolute(weights)
    return backbone.model_copy(update={"weights": weights})


def _problem_line(problem: dict[str, Any]) -> str:
    """Returns one line about a pydantic error: the field, what is wrong and what to do."""
    field = Option(".".join(map(_key, problem["loc"])) or "config")
    # pydantic reports unknown keys of a dataclass, as `method:` is, with the second type.
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known = did_you_mean(str(problem["loc"][-1]), _keys_at(problem["loc"][:-1]))
        return f"{field}: unknown key{known or '; remove it or check its spelling.'}"
    if problem["type"] == "missing":
        return f"{field}: is missing; add it."
    message = problem["msg"].removeprefix("Value error, ")
    if "llm" in problem["loc"]:
        # The values may contain a key by mistake, so the message repeats none of them.
        rules = {"base_url": "must be http(s)://host/path", "key_env": "must name a variable"}
        return f"{field}: {rules.get(str(problem['loc'][-1]), message)}."
    if problem["type"] == "string_pattern_mismatch":
        message = "must have only letters, digits and . _ @ + -, because it names a folder"
    value = problem["input"] if KEYS_IN_URL not in message else None
    shown = f" (it is {quoted(value)})" if isinstance(value, str | int | float | bool) else ""
    return f"{field}: {message}{shown}."


def _keys_at(path: Sequence[object]) -> list[str]:
    """Returns the keys that a section of the config may have."""
    section: Any = Config
    for part in path:
        if isinstance(part, str) and part in getattr(section, "model_fields", {}):
            section = _section_in(section.model_fields[part].annotation) or section
    return [
        *(section.model_fields if hasattr(section, "model_fields") else get_type_hints(section))
    ]


def _section_in(annotation: Any) -> Any:
    """Returns the section that a field holds, alone, in a list or as one of several types."""
    if hasattr(annotation, "model_fields") or is_dataclass(annotation):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)


def _key(part: object) -> str:
    """Returns a key as written, or quoted if it is long or not printable."""
    text = str(part)
    return text if text.isprintable() and len(text) <= 80 else quoted(text)
