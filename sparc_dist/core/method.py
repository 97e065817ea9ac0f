"""The method of a run: its fusions, their options, and which of them decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_args

from sparc_dist.core.debias import ImageDebias
from sparc_dist.core.shrinkage import PSEUDO_IMAGES
from sparc_dist.core.views import Scaling

StrategyName = Literal["max-variance", "kmax", "mean", "singleton"]

#: The share of an image's highest score that duo takes off all its scores.
RIVAL = 0.2


@dataclass(frozen=True)
class DuoOptions:
    """The parts of duo, each of which can be switched off.

    shrinkage: number of pseudo-images in the statistics of prompts and views. rival: the share of
    an image's highest score that is taken off all its scores. scaling: what the image step divides
    by. partners: whether what partners explain is taken off the compounds.
    """

    shrinkage: float = PSEUDO_IMAGES
    rival: float = RIVAL
    scaling: Scaling = "sqrt"
    partners: bool = True

    #: A config validates its section against this class; an unknown key there is an error.
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    def __post_init__(self) -> None:
        if not 0 <= self.shrinkage < float("inf"):
            raise ValueError(f"shrinkage is {self.shrinkage}; it must be at least 0 and finite")
        if not 0 <= self.rival < 1:
            raise ValueError(f"rival is {self.rival}; it must be at least 0 and below 1")
        if self.scaling not in get_args(Scaling):
            raise ValueError(
                f"scaling is {self.scaling!r}; choose one of {', '.join(get_args(Scaling))}"
            )


@dataclass(frozen=True)
class Method:
    """How scores are debiased and fused. The defaults are SPARC.

    strategy: max-variance (SPARC), kmax (the k-th highest), mean (the mean of ranks k … m_i) or
    singleton. merge: whether to average the fused score with the debiased singleton. norm: the norm
    of the max-variance weights that is 1. rival: the share of an image's highest score that is
    taken off all its scores. duo: the parts of duo. primary: the fusion that decides; with ``auto``
    SPARC on official data sets, duo on others. fusions: those that are computed, with those that
    they build on.
    """

    strategy: StrategyName = "max-variance"
    k: int = 1
    merge: bool = True
    norm: Literal["l1", "l2"] = "l1"
    image_debias: ImageDebias = "full"
    rival: float = 0.0
    duo: DuoOptions = field(default_factory=DuoOptions)
    primary: str = "auto"
    fusions: tuple[str, ...] = ("sparc", "duo")

    #: A config validates ``method:`` against this class; an unknown key there is an error.
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    def __post_init__(self) -> None:
        # Here, because fusions are fitted with methods.
        from sparc_dist.core.fusions import deciding, methods_of

        if self.k < 1:
            raise ValueError(f"k is {self.k}; it must be at least 1")
        if not 0 <= self.rival < 1:
            raise ValueError(f"rival is {self.rival}; it must be at least 0 and below 1")
        if not self.fusions or not {*self.fusions} <= {*deciding()}:
            known = ", ".join(deciding())
            raise ValueError(f"fusions is {list(self.fusions)}; list one or more of {known}")
        # Their order does not matter.
        listed = tuple(name for name in methods_of(self.fusions) if name in deciding())
        object.__setattr__(self, "fusions", listed)
        if self.primary not in ("auto", *listed):
            raise ValueError(
                f"primary is {self.primary}, which is not among the fusions "
                f"({', '.join(listed)}); list it there, or leave primary out"
            )

    def deciding(self, preferred: str) -> str:
        """Returns the fusion that decides.

        Where it is ``auto``, it is ``preferred``; if that is not listed, what it builds on, or the
        first one.
        """
        from sparc_dist.core.fusions import FUSIONS

        if self.primary != "auto":
            return self.primary
        known = (preferred, *FUSIONS[preferred].builds_on, *self.fusions)
        return next(name for name in known if name in self.fusions)

    def with_scores_alone(self) -> Method:
        """Returns the method without the fusions that need the embeddings of images.

        What the fusion that decides builds on takes its place.
        """
        from sparc_dist.core.fusions import FUSIONS

        left: tuple[str, ...] = ()
        for name in self.fusions:
            kind = FUSIONS[name]
            base = {*kind.builds_on} & {*self.fusions}
            left += () if kind.needs_embeddings or base - {*left} else (name,)
        others = replace(self, fusions=left, primary="auto")
        decides = "auto" if self.primary == "auto" else others.deciding(self.primary)
        return replace(others, primary=decides)

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Returns the options of a labeler: ``method``, and those of a fusion under its name."""
        options = asdict(self)
        own = [part.name for part in fields(self) if is_dataclass(getattr(self, part.name))]
        sections = {name: options.pop(name) for name in own}
        return {"method": options, **sections}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Method:
        """Returns the method of what ``to_json`` returned; other entries do not matter."""
        return cls(**facts["method"], duo=DuoOptions(**facts["duo"]))
