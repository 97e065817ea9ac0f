"""The schema of a config: one typed object per section, checked at the start of a run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from sparc_dist.config.backbone import ENSEMBLE, OPENAI, SIMULATED, BackboneConfig
from sparc_dist.config.kinds import DATASET_KINDS
from sparc_dist.config.names import Name, Section, Url, check_classes, check_url
from sparc_dist.core import Method


def _check_kind(kind: str) -> str:
    if kind not in DATASET_KINDS:
        raise ValueError(f"is not a kind of data set; use one of {', '.join(DATASET_KINDS)}")
    return kind


#: A kind of data set; ``sparc-dist datasets`` describes them.
Kind = Annotated[str, AfterValidator(_check_kind)]

#: The word between the two classes of a pair prompt.
PairTemplate = Literal["and", "or", "with", "next to", "and not"]

#: The most bytes of an image file, if a config does not say otherwise.
MAX_IMAGE_BYTES = 2**28
#: What is kept of each image beside its final scores.
Store = Literal["both", "scores", "embeddings"]
#: The precision of what is kept.
StoredPrecision = Literal["fp32", "fp16"]


class LLMConfig(Section):
    """A language model behind an OpenAI-compatible endpoint.

    base_url: the endpoint's URL without ``/chat/completions``, such as ``https://host/v1``.
    model: the name of the model.
    key_env: the environment variable that holds the API key.
    timeout_seconds: the time limit of one request.
    sentences: whether to ask for descriptive prompts in addition to the formulaic ones.
    """

    base_url: str = Field(pattern=r"^https?://[^\s@?#]+$")
    model: str
    key_env: str = Field("OPENAI_API_KEY", pattern=r"^[A-Z_][A-Z0-9_]*$")
    timeout_seconds: float = Field(60, gt=0, le=3600)
    sentences: bool = True


class PromptsConfig(Section):
    """Where a data set's compound prompts come from.

    source: ``training`` (co-occurrence in the data set's own training labels), ``labels``
    (co-occurrence in the table ``labels``), ``list`` (the file ``sets``), ``llm`` (pairs that the
    LLM finds plausible), ``all-pairs``, ``random`` (a control: each class with random characters)
    or ``none``.
    labels: the Parquet or CSV table with labels for the source ``labels``.
    sets: the text file for the source ``list``, with one pair or triplet of class names per line.
    direction: accept a pair if P(j|i) or P(i|j) is above tau2 (``either``), or only if P(j|i) is,
    where i comes first in the class list (``forward``).
    tau2: the probability above which two co-occurring classes become a pair.
    tau3: the probability P(k|i,j) above which a pair and its likeliest third class become a
    triplet.
    templates: the words that join the classes of a pair; each word makes one prompt per pair.
    pairs_per_class: for the source ``all-pairs``, the number of classes that each class is paired
    with, the nearest by the first backbone's text tower; ``all``, or ``auto``: all up to 40
    classes, 30 above.
    random_per_class: the number of prompts per class for the source ``random``.
    seed: the seed of the random characters of the source ``random``.
    descriptive: a text file with one additional prompt per line.
    llm: the language model for the source ``llm`` and for descriptive prompts.
    """

    source: Literal["training", "labels", "list", "llm", "all-pairs", "random", "none"]
    labels: Url | None = None
    sets: Url | None = None
    direction: Literal["either", "forward"] = "either"
    tau2: float = Field(0.05, ge=0, lt=1)
    tau3: float = Field(0.025, ge=0, lt=1)
    templates: tuple[PairTemplate, ...] = Field(("and",), min_length=1)
    pairs_per_class: Annotated[int, Field(ge=1)] | Literal["auto", "all"] = "auto"
    random_per_class: int = Field(30, ge=1, le=1000)
    seed: int = 0
    descriptive: Url | None = None
    llm: LLMConfig | None = None

    @model_validator(mode="after")
    def _check_source(self) -> PromptsConfig:
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
    """A data set: its images, class names and prompts.

    name: the name of the data set and of its folder in the run.
    kind: a kind that ``sparc-dist datasets`` lists; ``manifest`` by default.
    images: a table, a folder or tar files, as the kind requires; for ``folder`` also an image, a
    pattern such as ``photos/*.jpg``, or a list of these.
    classes: a list of class names, or a text file with one name per line; the official data sets
    have their own.
    background: names that are scored like classes and never reported, which few classes need:
    ``auto`` (as many as make 80 columns, if there are fewer than 40 classes), ``none``, a list of
    names, or a text file with one name per line; by default ``none`` for official data sets and
    ``auto`` for others.
    templates: those whose mean is a class's singleton prompt: open_clip's 7 ``simple`` ones or the
    paper's 80 (``openai``); by default ``openai`` for official data sets and ``simple`` for
    others.
    prompts: where the compound prompts come from; by default the source is ``training`` for
    official data sets and ``all-pairs`` for others.
    resnet_size: the side of the square input of ResNet backbones, in pixels; by default the
    paper's for official data sets and the model's own for others.
    """

    name: Name
    kind: Kind
    images: str | tuple[str, ...]
    classes: tuple[str, ...] | str | None = None
    background: tuple[str, ...] | str
    templates: Literal["simple", "openai"]
    prompts: PromptsConfig
    resnet_size: int | None = Field(None, ge=32, le=4096)

    @field_validator("images")
    @classmethod
    def _check_images(cls, images: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not images:
            raise ValueError("names no image; name at least one place")
        for url in [images] if isinstance(images, str) else images:
            check_url(url)
        return images

    @field_validator("classes", "background")
    @classmethod
    def _check_names(
        cls, names: tuple[str, ...] | str | None, info: ValidationInfo
    ) -> tuple[str, ...] | str | None:
        if isinstance(names, str):
            check_url(names)
        elif names or (names is not None and info.field_name == "classes"):
            check_classes(names)
        return names

    @model_validator(mode="before")
    @classmethod
    def _fill_in_defaults(cls, raw: Any) -> Any:
        """Fills in the defaults of the kind."""
        if not isinstance(raw, dict):
            return raw
        raw = {"kind": "manifest", **raw, "prompts": raw.get("prompts") or {}}
        kind = DATASET_KINDS.get(str(raw["kind"]), DATASET_KINDS["manifest"])
        raw = {**kind.defaults, **raw}
        if isinstance(raw["prompts"], dict):
            raw["prompts"] = {**kind.prompt_defaults, **raw["prompts"]}
        return raw

    @model_validator(mode="after")
    def _check_classes(self) -> DatasetConfig:
        kind = DATASET_KINDS[self.kind]
        if kind.official and self.classes is not None:
            raise ValueError(f"kind: {self.kind} has its own classes; remove `classes`")
        if not kind.official and self.classes is None:
            raise ValueError("`classes` is missing; list the names, or name a file that lists them")
        if not kind.official and self.prompts.source == "training":
            raise ValueError(
                f"kind: {self.kind} has no training labels; use source: labels with a table"
            )
        if not isinstance(self.images, str) and not kind.several:
            several = [name for name, other in DATASET_KINDS.items() if other.several]
            raise ValueError(f"`images` may be a list only with kind: {' or '.join(several)}")
        return self

    @property
    def texts(self) -> list[str]:
        """The files that it names besides its images."""
        prompts = self.prompts
        named = (self.classes, self.background_file, prompts.labels, prompts.sets)
        return [url for url in (*named, prompts.descriptive) if isinstance(url, str)]

    @property
    def background_file(self) -> str | None:
        """The text file with the names of the background classes, if there is one."""
        listed = isinstance(self.background, tuple) or self.background in ("auto", "none")
        return None if listed else str(self.background)


class ResourcesConfig(Section):
    """What a run may use; a run can be resumed with other resources.

    Only a change of threads_per_scorer makes it another run.

    cpus: the number of CPUs to request from an autoscaling cluster, or to start a local Ray with;
    a running cluster of fixed size uses those it has.
    gpus: the number of GPUs to request from an autoscaling cluster.
    scorers: the number of model actors; by default one per GPU share, or one per two CPUs.
    gpus_per_scorer: 1, a fraction, or 0 to score on CPUs; by default 1 if the cluster has GPUs.
    gpu_memory_gb: the memory of one GPU.
    backbones_per_scorer: the largest number of backbones that share a scorer and its decoded
    images; by default as many as fit into memory.
    threads_per_scorer: the number of CPU threads of a scorer.
    no_progress_seconds: the time without a finished shard after which a unit fails.
    executor: ``process`` does all work in this process, ``ray`` on Ray; ``auto`` starts no Ray for
    one backbone and up to 2,000 images (fewer on machines with more than four CPUs), unless
    RAY_ADDRESS names one.
    """

    cpus: int | None = Field(None, ge=1)
    gpus: int | None = Field(None, ge=1)
    scorers: int | None = Field(None, ge=1)
    gpus_per_scorer: float | None = Field(None, ge=0, le=1)
    gpu_memory_gb: float = Field(16, gt=0)
    backbones_per_scorer: int | None = Field(None, ge=1)
    threads_per_scorer: int = Field(2, ge=1, le=256)
    no_progress_seconds: int = Field(3600, ge=1)
    executor: Literal["auto", "process", "ray"] = "auto"


class Config(Section):
    """A run: every data set with every backbone, in one output URL.

    output: the folder or URL that the run is written to.
    datasets: the data sets to score.
    backbones: the models to score with; by default the paper's nine with OpenAI's weights.
    weights_folder: the folder with OpenAI's checkpoint files, for backbones whose weights are
    ``openai``; by default they are downloaded from the hub.
    labeler: a labeler file to label all images with; by default the run fits its own.
    method: how scores are debiased and fused; by default SPARC.
    average_backbones: whether a data set that is finished under two or more backbones gets an
    ensemble, the mean of their standardised final scores; a run can be resumed with another choice.
    empty_class: whether a class without positives is left out of the mAP (``skip``) or counts as 0
    (``zero``).
    shard_size: the number of images per stored file.
    batch_size: the number of images per forward pass of a model.
    jpeg_scaling: whether a JPEG with at least four times a model's input side in both directions is
    decoded at 1/2, 1/4 or 1/8 of its size, which is faster.
    max_image_bytes: the size of an image file above which it counts as unreadable; no more of it is
    read.
    store: what is kept of each image beside its final scores: its similarities to all prompts
    (``scores``), its embedding, from which the reduce computes them again (``embeddings``), or
    ``both``.
    stored_precision: the precision of what is kept; fp16 takes half the space and rounds scores.
    max_error_share: the share of unreadable images above which a unit counts as failed, although
    its other results are saved.
    resources: the CPUs, GPUs and time limits of the run.
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
    labeler: Url | None = None
    method: Method = Method()
    average_backbones: bool = True
    empty_class: Literal["skip", "zero"] = "skip"
    shard_size: int = Field(256, ge=1, le=65536)
    batch_size: int = Field(64, ge=1, le=65536)
    jpeg_scaling: bool = True
    max_image_bytes: int = Field(MAX_IMAGE_BYTES, ge=1)
    store: Store = "both"
    stored_precision: StoredPrecision = "fp32"
    max_error_share: float = Field(0.05, ge=0, le=1)
    resources: ResourcesConfig = ResourcesConfig()

    @model_validator(mode="before")
    @classmethod
    def _move_fusions(cls, raw: Any) -> Any:
        """Accepts ``fusions`` at the top level: it belongs to ``method``."""
        if not isinstance(raw, dict) or "fusions" not in raw:
            return raw
        method = cls._expand_method(raw.get("method") or {})
        if not isinstance(method, dict):
            return raw
        if "fusions" in method:
            raise ValueError("`fusions` is there twice; remove it here or from `method`")
        others = {key: value for key, value in raw.items() if key != "fusions"}
        return {**others, "method": {**method, "fusions": raw["fusions"]}}

    @field_validator("method", mode="before")
    @classmethod
    def _expand_method(cls, method: Any) -> Any:
        """Accepts ``paper`` for SPARC as published, and ``duo``."""
        names = {"paper": "sparc", "duo": "duo"}
        known = isinstance(method, str) and method in names
        return {"primary": names[method]} if known else method

    @field_validator("datasets", "backbones")
    @classmethod
    def _check_names(cls, sections: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
        names = [section.name for section in sections]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"duplicate name {name!r}; make the names unique")
        folders = {"report", "experiments", *([ENSEMBLE] if info.field_name == "backbones" else [])}
        if taken := folders & {*names}:
            name = min(taken)
            raise ValueError(f"the name {name!r} is taken by a folder of the run; choose another")
        return sections

    @model_validator(mode="after")
    def _check_store(self) -> Config:
        for backbone in self.backbones if self.store == "embeddings" else ():
            if backbone.features != "global" or backbone.model == SIMULATED:
                what = f"features: {backbone.features}"
                if backbone.model == SIMULATED:
                    what = f"model: {SIMULATED}"
                raise ValueError(
                    f"backbone {backbone.name} has {what}, whose scores cannot be computed from "
                    "embeddings; write store: both or scores"
                )
        return self

    def identity(self) -> dict[str, Any]:
        """Returns what determines the results: runs with equal identities have equal bytes."""
        others = {
            *("output", "resources", "max_error_share", "max_image_bytes", "average_backbones")
        }
        fields = self.model_dump(mode="json", exclude=others)
        # The number of threads changes the order of sums, and with it their rounding.
        return fields | {"threads_per_scorer": self.resources.threads_per_scorer}
