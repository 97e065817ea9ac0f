"""The configuration of a run: one typed object, checked at the start."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from sparc_dist.config.class_names import check_classes
from sparc_dist.config.presets import DATASET_KINDS, OPENAI, SIMULATED, TINY
from sparc_dist.core.fusion import Method
from sparc_dist.storage import is_remote, without_secrets

#: Names become folders of the run, so they must be plain.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]*$", max_length=80)]


KEYS_IN_URL = "carries what may be a user name or key; take it out, keys belong elsewhere"


def is_file_name(weights: str) -> bool:
    """A checkpoint file rather than an open_clip tag."""
    return "/" in weights or weights.endswith((".pt", ".pth", ".bin", ".safetensors"))


def _check_url(url: str) -> str:
    if is_remote(url) and without_secrets(url) != url:
        raise ValueError(KEYS_IN_URL)
    if "\0" in url:
        raise ValueError("holds a NUL, which no path can; remove it")
    return url


#: A local path or a URL; it is written to run.json, so it must not hold a secret.
Url = Annotated[str, AfterValidator(_check_url)]


def _check_kind(kind: str) -> str:
    if kind not in DATASET_KINDS:
        raise ValueError(f"is not a kind of data set; write one of {', '.join(DATASET_KINDS)}")
    return kind


#: A kind of data set; ``sparc-dist datasets`` describes them.
Kind = Annotated[str, AfterValidator(_check_kind)]

#: The word between the two classes of a pair prompt.
PairTemplate = Literal["and", "or", "with", "next to", "and not"]


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
    kind: Kind
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
        preset = DATASET_KINDS.get(str(raw["kind"]))
        prompts = {"source": "training" if preset else "all-pairs", **raw["prompts"]}
        if preset:
            prompts = {"direction": preset.direction, **prompts}
            raw = {"resnet_size": preset.resnet_size, **raw}
        return {**raw, "prompts": prompts}

    @model_validator(mode="after")
    def _classes_fit_the_kind(self) -> DatasetConfig:
        official = DATASET_KINDS[self.kind] is not None
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

    model: a name that open_clip knows, ``sparc-tiny``, the model in this package, or ``simulated``,
    which only ``sparc-dist simulate`` can score with.
    weights: an open_clip tag such as ``openai``, or a checkpoint: a file, or a URL that every node
    fetches once. sha256: of that checkpoint, compared before it is used.
    precision: of the image tower's products; scores are float32 in any case.
    image_size: the side of the square input; the model's own when left out.
    """

    name: Name
    model: str
    weights: Url | None = None
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    image_size: int | None = Field(None, ge=16, le=4096)

    @model_validator(mode="after")
    def _weights_fit(self) -> BackboneConfig:
        own = self.model in (TINY, SIMULATED)
        if own and self.weights is not None:
            raise ValueError(f"model: {self.model} takes no weights; remove `weights`")
        if own and self.image_size is not None:
            raise ValueError(f"model: {self.model} has one input size; remove `image_size`")
        if not own and self.weights is None:
            raise ValueError("`weights` is missing; name an open_clip tag or a checkpoint file")
        if self.sha256 and not is_file_name(self.weights or ""):
            raise ValueError("`sha256` is of a checkpoint file; name one under `weights`")
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


class ResourcesConfig(Section):
    """What a run may use; a second start with other resources goes on with the same run.

    Only threads_per_scorer makes it another run.

    cpus, gpus: to ask an autoscaling cluster for, and cpus also of the Ray that is started here; a
    running cluster of fixed size brings its own.
    scorers: model actors; one per GPU share, or one per two CPUs, when left out.
    gpus_per_scorer: 1, a fraction, or 0 for the CPU; 1 where the cluster has GPUs when left out.
    gpu_memory_gb: of one GPU. threads_per_scorer: on the CPU.
    backbones_per_scorer: at most so many share a scorer and each look at an image; as many as fit
    into its memory when left out.
    no_progress_seconds: after so long without one finished shard the unit ends with an error.
    """

    cpus: int | None = Field(None, ge=1)
    gpus: int | None = Field(None, ge=1)
    scorers: int | None = Field(None, ge=1)
    gpus_per_scorer: float | None = Field(None, ge=0, le=1)
    gpu_memory_gb: float = Field(16, gt=0)
    backbones_per_scorer: int | None = Field(None, ge=1)
    threads_per_scorer: int = Field(2, ge=1, le=256)
    no_progress_seconds: int = Field(3600, ge=1)


class Config(Section):
    """A run: every data set under every backbone, into one output URL.

    backbones: the paper's nine under OpenAI's weights when left out.
    weights_folder: where OpenAI's files lie, for backbones with weights: openai; the hub when left
    out.
    shard_size: images per stored file. batch_size: images per step through the model.
    empty_class: leave a class without a positive out of the mAP (skip), or count it as 0 (zero).
    max_error_share: with a larger share of images that cannot be read, a unit counts as failed,
    although all else of it is saved.
    """

    output: Url
    datasets: tuple[DatasetConfig, ...] = Field(min_length=1)
    backbones: tuple[BackboneConfig, ...] = Field(
        default_factory=lambda: tuple(
            BackboneConfig(name=name, model=model, weights="openai")
            for name, (model, _) in OPENAI.items()
        ),
        min_length=1,
    )
    weights_folder: Url | None = None
    method: Method = Method()
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
        if taken := {"report", "experiments"} & {*names}:
            name = min(taken)
            raise ValueError(f"the name {name!r} is taken by a folder of the run; choose another")
        return sections

    def identity(self) -> dict[str, Any]:
        """What decides the results: two runs with the same identity give the same bytes."""
        decisive = self.model_dump(mode="json", exclude={"output", "resources", "max_error_share"})
        # Sums in another order round otherwise: the last bit depends on the number of threads.
        return decisive | {"threads_per_scorer": self.resources.threads_per_scorer}
