"""The fusions: the dictionary of all, their fit in shared passes, and the models of a unit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.arrays import ScoresLike, as_scores, slices
from sparc_dist.core.baselines import Debiased, Zsclip
from sparc_dist.core.debias import Scores
from sparc_dist.core.duo import Duo
from sparc_dist.core.final_scores import FinalScores, Float32
from sparc_dist.core.fusion import Arrays, Facts, Fusion, Given, Totals
from sparc_dist.core.method import Method
from sparc_dist.core.moments import Floats
from sparc_dist.core.order_statistics import Mentions
from sparc_dist.core.sparc import Sparc
from sparc_dist.core.states import Kinds, States

#: All fusions by name, in the order of tables; each after those that it builds on.
FUSIONS: dict[str, type[Fusion]] = {kind.name: kind for kind in (Zsclip, Debiased, Sparc, Duo)}


def deciding() -> list[str]:
    """Returns the names of the fusions that can decide; the others are baselines."""
    return [name for name, kind in FUSIONS.items() if kind.part is not None]


def methods_of(fusions: Iterable[str]) -> list[str]:
    """Returns the methods of a unit that lists these fusions.

    They are the baselines, the fusions and what those build on.
    """
    listed = {*fusions}
    for name, kind in reversed(FUSIONS.items()):
        listed |= {*kind.builds_on} if name in listed else set()
    return [name for name, kind in FUSIONS.items() if kind.part is None or name in listed]


def columns_of(fusions: Iterable[str]) -> list[str]:
    """Returns the names of final scores with these fusions: methods, then parts."""
    methods = methods_of(fusions)
    parts = {name: FUSIONS[name].part for name in methods}
    return [*methods, *(f"{name}_{part}" for name, part in parts.items() if part is not None)]


def totals_of(fusions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns for each fusion those whose totals its prevalences are estimated from."""
    return {name: FUSIONS[name].totals or (name,) for name in fusions}


def stages_of(fusions: Iterable[str]) -> list[str]:
    """Returns the stages of the passes that fit these fusions."""
    return [stage for stage, _ in _passes([FUSIONS[name] for name in methods_of(fusions)])]


def _spans(kinds: Sequence[type[Fusion]]) -> dict[str, range]:
    """Returns the numbers of the passes that each fusion takes part in.

    One that builds on others starts after the last pass of these.
    """
    found: dict[str, range] = {}
    for kind in kinds:
        start = max((found[name].stop for name in kind.builds_on), default=0)
        found[kind.name] = range(start, start + len(kind.passes))
    return found


def _passes(kinds: Sequence[type[Fusion]]) -> list[tuple[str, Kinds]]:
    """Returns the stage of each pass, and the type of the state of each fusion in it."""
    spans = _spans(kinds)
    found: list[tuple[str, Kinds]] = []
    for number in range(max(span.stop for span in spans.values())):
        active = [kind for kind in kinds if number in spans[kind.name]]
        own = {kind.name: kind.passes[spans[kind.name].index(number)] for kind in active}
        stage = own[active[0].name][0]
        found.append((stage, Kinds({name: state for name, (_, state) in own.items()})))
    return found


@dataclass(frozen=True)
class Fitting:
    """A fit under way.

    kinds: the fusions, each after those that it builds on. done: the number of passes that are
    over. states: of each fusion that is not yet fitted, the merged states of its passes so far.
    models: the fusions that are fitted.
    """

    given: Given
    kinds: tuple[type[Fusion], ...]
    done: int = 0
    states: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    models: Mapping[str, Fusion] = field(default_factory=dict)

    @classmethod
    def start(cls, mentions: Mentions, classes: int, method: Method) -> Fitting:
        """Returns a fit before its first pass."""
        kinds = tuple(FUSIONS[name] for name in methods_of(method.fusions))
        return cls(Given(method, mentions, classes), kinds)._fitted()

    @property
    def passes(self) -> list[tuple[str, Kinds]]:
        """The stage of each pass, and the type of the state of each fusion in it."""
        return _passes(self.kinds)

    @property
    def needs_embeddings(self) -> bool:
        """Whether the next pass needs the embeddings of images."""
        return any(kind.needs_embeddings for kind in self._next)

    def gather(self) -> Callable[[Scores], States[Any]]:
        """Returns the function that makes the states of a shard in the next pass."""
        makers = {kind.name: kind.gather(self._given(kind)) for kind in self._next}
        return lambda scores: States(
            {name: of(scores) for name, of in makers.items() if of is not None}
        )

    def after(self, merged: Mapping[str, Any]) -> Fitting:
        """Returns the fit after the next pass, whose merged states these are."""
        states = {name: (*self.states.get(name, ()), state) for name, state in merged.items()}
        return replace(self, done=self.done + 1, states={**self.states, **states})._fitted()

    @property
    def fusions(self) -> Fusions:
        """The fitted fusions, once all passes are over."""
        return Fusions(self.given, {kind.name: self.models[kind.name] for kind in self.kinds})

    @property
    def _next(self) -> list[type[Fusion]]:
        spans = _spans(self.kinds)
        return [kind for kind in self.kinds if self.done in spans[kind.name]]

    def _given(self, kind: type[Fusion]) -> Given:
        base = {name: self.models[name] for name in kind.builds_on}
        return replace(self.given, base=base, states=self.states.get(kind.name, ()))

    def _fitted(self) -> Fitting:
        """Returns the fit with the models of all fusions whose passes are over."""
        spans, found = _spans(self.kinds), self
        for kind in self.kinds:
            if spans[kind.name].stop <= self.done and kind.name not in found.models:
                models = {**found.models, kind.name: kind.fit(found._given(kind))}
                states = {name: own for name, own in found.states.items() if name != kind.name}
                found = replace(found, states=states, models=models)
        return found


def fit_fusions(
    shards: Callable[[], Iterable[Scores]], mentions: Mentions, classes: int, method: Method
) -> Fusions:
    """Fits on shards in this process; ``shards`` returns a new iterator for each pass."""
    fitting = Fitting.start(mentions, classes, method)
    for _ in fitting.passes:
        fitting = fitting.after(reduce(add, map(fitting.gather(), shards())))
    return fitting.fusions


@dataclass(frozen=True)
class Fusions:
    """The fitted fusions of N classes, baselines included; they score N + B columns.

    given: what they were fitted with. models: by name, in the order of tables.
    """

    given: Given
    models: Mapping[str, Fusion]

    def __getitem__(self, name: str) -> Fusion:
        return self.models[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The fusions that can decide."""
        return tuple(name for name, model in self.models.items() if model.part is not None)

    @property
    def images(self) -> int:
        """The number of images that they were fitted on."""
        return self._debiased.moments.count

    @property
    def needs_embeddings(self) -> bool:
        """Whether final scores need the embeddings of images."""
        return any(model.needs_embeddings for model in self.models.values())

    @property
    def totals(self) -> dict[str, tuple[str, ...]]:
        """For each fusion, those whose totals its prevalences are estimated from."""
        return {name: self.models[name].totals or (name,) for name in self.names}

    @property
    def notes(self) -> list[str]:
        """What a user should know about degenerate data: that of the last fusion, then the rest.

        Each is there once; those of the others name their fusion.
        """
        *others, last = (self.models[name] for name in self.names)
        rest = (
            f"{model.title}: {note}"
            for model in others
            for note in model.notes
            if note not in last.notes
        )
        return [*last.notes, *rest]

    def scored(self, name: str, scores: Scores) -> Totals:
        """Returns the scores of one fusion before and after the rival is taken off: (n, N + B).

        Of the others, only those that it builds on are computed.
        """
        model = self.models[name]
        return model.final(scores, {base: self.scored(base, scores) for base in model.builds_on})

    def final(self, scores: Scores) -> FinalScores:
        """Returns the final scores of n images."""
        n, done = self.given.classes, dict[str, Totals]()
        for name, model in self.models.items():
            done[name] = model.final(scores, {base: done[base] for base in model.builds_on})
        methods = {name: final[:, :n] for name, (_, final) in done.items()}
        parts = {
            f"{name}_{self.models[name].part}": final[:, n:]
            if self.models[name].part == "background"
            else total
            for name, (total, final) in done.items()
            if name in self.names
        }
        return FinalScores(_float32(methods), _float32(parts))

    def debias_singletons(self, scores: Scores) -> Floats:
        """Returns the debiased singleton scores (n, N + B)."""
        return self._debiased.debias_singletons(scores)

    @property
    def _debiased(self) -> Debiased:
        found = self.models[Debiased.name]
        assert isinstance(found, Debiased)
        return found

    def transform(self, scores: ScoresLike, method: str = "duo") -> Float32:
        """Returns the final scores (n, N) of n images, which need not be those of the fit.

        scores: singleton (n, N + B), auxiliary (n, N + B) and compound (n, P), in any form that
        ``fit`` takes. method: duo, sparc, debiased or zsclip.

        Raises ValueError if the shapes are not those of the fit.
        """
        if method not in self.models:
            raise ValueError(f"method is {method!r}; choose one of {', '.join(self.models)}")
        checked, columns = as_scores(scores), len(self.given.mentions)
        found = checked.singleton.shape[1], checked.compound.shape[1]
        expected = columns, len(self._debiased.moments.mean) - columns
        if found != expected:
            raise ValueError(
                f"singleton and compound have {found[0]} and {found[1]} columns; the fit had "
                f"{expected[0]} and {expected[1]}"
            )
        n = self.given.classes
        parts = (self.scored(method, part)[1][:, :n] for part in slices(checked)())
        return np.concatenate([part.astype(np.float32) for part in parts])

    def arrays(self) -> Arrays:
        """Returns what a labeler stores of them, by the prefix of each."""
        return {
            f"{model.prefix}.{name}": array
            for model in self.models.values()
            for name, array in model.arrays().items()
        }

    def facts(self) -> Facts:
        """Returns the entries of a labeler's JSON about options, notes and what else they store."""
        own = {name: model.facts() for name, model in self.models.items()}
        more = {name: facts for name, facts in own.items() if facts}
        return {
            **self.given.method.to_json(),
            **({"fusions": more} if more else {}),
            "notes": {name: list(self.models[name].notes) for name in self.names},
        }

    @classmethod
    def restored(cls, facts: Mapping[str, Any], arrays: Arrays, mentions: Mentions) -> Fusions:
        """Returns the fusions of a labeler's JSON and arrays."""
        method = Method.from_json(facts)
        given = Given(method, mentions, len(facts["classes"]))
        models: dict[str, Fusion] = {}
        for name in methods_of(method.fusions):
            kind = FUSIONS[name]
            prefix = f"{kind.prefix}."
            own = {
                key.removeprefix(prefix): array
                for key, array in arrays.items()
                if key.startswith(prefix)
            }
            notes = {"notes": facts["notes"].get(name, ()), "images": facts["images"]}
            base = {name: models[name] for name in kind.builds_on}
            told = facts.get("fusions", {}).get(name, {}) | notes
            models[name] = kind.restored(replace(given, base=base), own, told)
        return cls(given, models)


def _float32(parts: Mapping[str, NDArray[np.floating]]) -> dict[str, Float32]:
    return {name: part.astype(np.float32) for name, part in parts.items()}
