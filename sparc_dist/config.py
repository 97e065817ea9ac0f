"""The configuration of a run: one typed object, read from YAML and checked at the start.

Relative paths are relative to the config file's folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from sparc_dist import storage
from sparc_dist.core.fusion import Method
from sparc_dist.errors import UserError, quoted
from sparc_dist.filesystems import is_remote, without_secrets
from sparc_dist.prompts.compound import PairTemplate
from sparc_dist.prompts.matching import words_of

#: Of the official data sets: the direction of pairs and the input side of ResNets.
PRESETS = {
    "voc2007": ("forward", 512),
    "coco2014": ("either", 448),
    "nuswide": ("either", 448),
}

#: Names become folders of the run, so they must be plain.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]*$", max_length=80)]


KEYS_IN_URL = "carries what may be a user name or key; take it out, keys belong elsewhere"


def _check_url(url: str) -> str:
    if is_remote(url) and without_secrets(url) != url:
        raise ValueError(KEYS_IN_URL)
    if "\0" in url:
        raise ValueError("holds a NUL, which no path can; remove it")
    return url


#: A local path or a URL; it is written to run.json, so it must not hold a secret.
Url = Annotated[str, AfterValidator(_check_url)]


class Section(BaseModel):
    """A part of the config; a key it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class LLMConfig(Section):
    """An OpenAI-compatible endpoint; its key is taken from an environment variable.

    sentences: ask it for descriptive prompts on top of the formulaic ones.
    """

    base_url: str = Field(pattern=r"^https?://[^\s@?#]+$")
    model: str
    key_env: str = Field("OPENAI_API_KEY", pattern=r"^[A-Z_][A-Z0-9_]*$")
    timeout_seconds: float = Field(60, gt=0, le=3600)
    sentences: bool = True


class PromptsConfig(Section):
    """Where a data set's compound prompts come from.

    source: ``training`` (co-occurrence in the data set's own training labels), ``labels`` (in the
    table ``labels``), ``list`` (the file ``sets`` with a pair or triplet of class names a line),
    ``llm`` (pairs that the LLM finds plausible), ``all-pairs``, ``random`` (the control: each
    class with random characters) or ``none``.
    templates: of pairs. descriptive: a text file with one more prompt a line.
    """

    source: Literal["training", "labels", "list", "llm", "all-pairs", "random", "none"]
    labels: Url | None = None
    sets: Url | None = None
    direction: Literal["either", "forward"] = "either"
    tau2: float = Field(0.05, ge=0, lt=1)
    tau3: float = Field(0.025, ge=0, lt=1)
    templates: tuple[PairTemplate, ...] = Field(("and",), min_length=1)
    random_per_class: int = Field(30, ge=1, le=1000)
    seed: int = 0
    descriptive: Url | None = None
    llm: LLMConfig | None = None

    @model_validator(mode="after")
    def _files_go_with_their_source(self) -> PromptsConfig:
        needs = {"labels": "a Parquet or CSV table", "sets": "a text file", "llm": "an endpoint"}
        sources = {"labels": "labels", "sets": "list", "llm": "llm"}
        for key, source in sources.items():
            given = getattr(self, key) is not None
            if self.source == source and not given:
                raise ValueError(f"source: {source} needs `{key}`, {needs[key]}")
            if given and self.source != source and key != "llm":
                raise ValueError(
                    f"`{key}` is only read with source: {source}; set that or remove it"
                )
        return self


class DatasetConfig(Section):
    """Images and class names.

    kind: as ``sparc-dist datasets`` lists them. images: a table, a folder or tar files, as the
    kind needs. classes: a list of names, or a text file with one name a line; the official data
    sets have their own. resnet_size: the input side of ResNet backbones.
    """

    name: Name
    kind: Literal["manifest", "folder", "webdataset", "voc2007", "coco2014", "nuswide"]
    images: Url
    classes: tuple[str, ...] | str | None = None
    prompts: PromptsConfig
    resnet_size: int | None = Field(None, ge=32, le=4096)

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_kinds_preset(cls, raw: Any) -> Any:
        """The paper's setting of the official data sets; all pairs where nothing is known."""
        if not isinstance(raw, dict):
            return raw
        raw = {"kind": "manifest", **raw, "prompts": raw.get("prompts") or {}}
        if not isinstance(raw["prompts"], dict):
            return raw
        preset = PRESETS.get(str(raw["kind"]))
        source, direction = ("training", preset[0]) if preset else ("all-pairs", "either")
        prompts = {"source": source, "direction": direction, **raw["prompts"]}
        if preset:
            raw = {"resnet_size": preset[1], **raw}
        return {**raw, "prompts": prompts}

    @model_validator(mode="after")
    def _classes_fit_the_kind(self) -> DatasetConfig:
        official = self.kind in PRESETS
        if official and self.classes is not None:
            raise ValueError(f"kind: {self.kind} has its own classes; remove `classes`")
        if not official and self.classes is None:
            raise ValueError("`classes` is missing; list the names, or name a file with them")
        if not official and self.prompts.source == "training":
            raise ValueError(
                f"kind: {self.kind} has no training labels; write source: labels with a table"
            )
        if isinstance(self.classes, tuple):
            check_classes(self.classes)
        if isinstance(self.classes, str):
            _check_url(self.classes)
        return self


class BackboneConfig(Section):
    """A CLIP-type model.

    model: a name that open_clip knows, or ``sparc-tiny``, the model in this package.
    weights: an open_clip tag such as ``openai``, or a checkpoint file.
    image_size: the side of the square input; the model's own when left out.
    """

    name: Name
    model: str
    weights: Url | None = None
    image_size: int | None = Field(None, ge=16, le=4096)

    @model_validator(mode="after")
    def _weights_fit(self) -> BackboneConfig:
        if self.model == TINY and self.weights is not None:
            raise ValueError(f"model: {TINY} carries its own weights; remove `weights`")
        if self.model == TINY and self.image_size is not None:
            raise ValueError(f"model: {TINY} has one input size; remove `image_size`")
        if self.model != TINY and self.weights is None:
            raise ValueError("`weights` is missing; name an open_clip tag or a checkpoint file")
        if (self.weights or "").lower() == "openai" and not self.model.endswith("-quickgelu"):
            raise ValueError(
                f"OpenAI's weights give wrong scores under {self.model}; "
                f"write model: {self.model}-quickgelu"
            )
        return self

    def sized(self, resnet_size: int | None) -> BackboneConfig:
        """This backbone on a data set that wants its ResNets at another input size."""
        if self.image_size is not None or not self.model.startswith("RN"):
            return self
        return self.model_copy(update={"image_size": resnet_size})


class MethodConfig(Section):
    """How scores are debiased and fused; the defaults are SPARC."""

    strategy: Literal["max-variance", "kmax", "mean", "singleton"] = "max-variance"
    k: int = Field(1, ge=1)
    merge: bool = True
    norm: Literal["l1", "l2"] = "l1"
    image_debias: Literal["full", "centre", "none"] = "full"

    def method(self) -> Method:
        """The same for core, which knows no config."""
        return Method(self.strategy, self.k, self.merge, self.norm, self.image_debias)


class ResourcesConfig(Section):
    """What a run may use; a second start with other resources goes on with the same run.

    Only threads_per_scorer makes it another run.

    cpus: of the Ray that is started here; a running cluster brings its own.
    scorers: model actors; one per GPU share, or one per two CPUs, when left out.
    gpus_per_scorer: 1, a fraction, or 0 for the CPU; 1 where the cluster has GPUs when left out.
    threads_per_scorer: on the CPU.
    no_progress_seconds: after so long without one finished shard the unit ends with an error.
    """

    cpus: int | None = Field(None, ge=1)
    scorers: int | None = Field(None, ge=1)
    gpus_per_scorer: float | None = Field(None, ge=0, le=1)
    threads_per_scorer: int = Field(2, ge=1, le=256)
    no_progress_seconds: int = Field(3600, ge=1)


class Config(Section):
    """A run: every data set under every backbone, into one output URL.

    shard_size: images per stored file. batch_size: images per step through the model.
    empty_class: leave a class without a positive out of the mAP (skip), or count it as 0 (zero).
    max_error_share: with a larger share of images that cannot be read, a unit counts as failed,
    although all else of it is saved.
    """

    output: Url
    datasets: tuple[DatasetConfig, ...] = Field(min_length=1)
    backbones: tuple[BackboneConfig, ...] = Field(min_length=1)
    method: MethodConfig = MethodConfig()
    empty_class: Literal["skip", "zero"] = "skip"
    shard_size: int = Field(256, ge=1, le=65536)
    batch_size: int = Field(64, ge=1, le=65536)
    max_error_share: float = Field(0.05, ge=0, le=1)
    resources: ResourcesConfig = ResourcesConfig()

    @field_validator("datasets", "backbones")
    @classmethod
    def _names_differ(cls, sections: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [section.name for section in sections]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} stands twice; give each its own")
        if "report" in names:
            raise ValueError("the name 'report' is taken by the run's report; choose another")
        return sections

    def identity(self) -> dict[str, Any]:
        """What decides the results: two runs with the same identity give the same bytes."""
        decisive = self.model_dump(mode="json", exclude={"output", "resources", "max_error_share"})
        # Sums in another order round otherwise: the last bit depends on the number of threads.
        return decisive | {"threads_per_scorer": self.resources.threads_per_scorer}


#: The model that this package carries.
TINY = "sparc-tiny"


def check_classes(classes: Sequence[str]) -> None:
    """Raise ValueError when class names are missing, empty, repeated or look the same."""
    if not classes:
        raise ValueError("there is no class; name at least one")
    spelt: dict[str, str] = {}
    for name in classes:
        letters = "".join(words_of(name))
        if not letters:
            raise ValueError(f"the class name {quoted(name)} has no letter or digit; give it one")
        if spelt.get(letters) == name:
            raise ValueError(f"the class {quoted(name)} stands twice; keep one")
        if letters in spelt:
            raise ValueError(
                f"the classes {quoted(spelt[letters])} and {quoted(name)} are spelt with the same "
                "letters, so no prompt could tell them apart; rename one"
            )
        spelt[letters] = name


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
        return storage.absolute(url, base)

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
    backbones = [
        backbone.model_copy(update={"weights": at(backbone.weights)})
        if backbone.weights and is_file_name(backbone.weights)
        else backbone
        for backbone in config.backbones
    ]
    return config.model_copy(
        update={
            "output": at(config.output),
            "datasets": tuple(datasets),
            "backbones": tuple(backbones),
        }
    )


def is_file_name(weights: str) -> bool:
    """A checkpoint file rather than an open_clip tag."""
    return "/" in weights or weights.endswith((".pt", ".pth", ".bin", ".safetensors"))


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
