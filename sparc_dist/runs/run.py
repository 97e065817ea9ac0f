"""A run and its finished units, read from storage as arrays and Arrow tables: no Ray, no model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import load_config
from sparc_dist.core import CountedState, FinalScores, ScoredState
from sparc_dist.errors import UserError, quoted
from sparc_dist.runs import reduce_checkpoints
from sparc_dist.runs.ensemble_file import AnyLabeler, read_any_labeler
from sparc_dist.runs.labeler_file import read_facts
from sparc_dist.runs.layout import DatasetLayout, RunLayout, UnitLayout, shard_groups
from sparc_dist.runs.markers import READERS
from sparc_dist.runs.record import read_record
from sparc_dist.runs.results import Results, UnitKey, existing_units, read_metrics
from sparc_dist.runs.shards import UnitShards, read_images, shard_sizes
from sparc_dist.runs.status import UnitStatus, status
from sparc_dist.runs.storing import matrix

#: A table that each shard has a part of.
TableKind = Literal["scores", "errors", "final", "labels"]


@dataclass(frozen=True)
class ShardLabels:
    """The labels of a shard's n scored images. probability, present, scores: (n, N).

    probability: NaN for a class whose scores do not vary. scores: of the method that decides.
    """

    ids: list[str]
    uris: list[str]
    probability: NDArray[np.float32]
    present: NDArray[np.bool_]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class FinishedUnit:
    """A unit that has decisions.

    primary: the method that decides. metrics: its metrics.json. config: of its run.
    """

    data: DatasetLayout
    unit: UnitLayout
    classes: Sequence[str]
    background: int
    primary: str
    metrics: dict[str, Any]
    config: dict[str, Any]

    @cached_property
    def sizes(self) -> list[int]:
        """The number of images of each shard, unreadable ones included."""
        return shard_sizes(self.data)

    @property
    def reader(self) -> UnitShards:
        """Reads its shards."""
        return UnitShards(self.data, self.unit, len(self.classes), 0, self.background)

    @cached_property
    def states(self) -> tuple[ScoredState, CountedState, list[str]]:
        """The merged states of passes 3 and 4, and the hash of each shard's final scores."""
        self.check_fitted()
        finals: list[ScoredState] = []
        counts: list[CountedState] = []
        hashes: list[str] = []
        for number, shards in enumerate(shard_groups(len(self.sizes))):
            final = self._state("final_scores", number, ScoredState)
            count = self._state("decision_statistics", number, CountedState)
            if final[2] != count[2] or reduce_checkpoints.group_of(final[2]) != shards:
                raise self._incomplete(self.unit.state("decision_statistics", number))
            finals.append(final[0])
            counts.append(count[0])
            hashes += final[1]
        return reduce_checkpoints.merge(finals), reduce_checkpoints.merge(counts), hashes

    def check_fitted(self) -> None:
        """Raises UserError if a labeler of other images decided: nothing here can be refitted."""
        if "fitted_on" in self.metrics:
            raise UserError(
                f"{self.unit.root} was labelled by a labeler fitted on {self.metrics['fitted_on']} "
                "images; fit again over all with `sparc-dist label --refit`, or use the run that "
                "fitted it."
            )

    def labeler(self) -> AnyLabeler:
        """Returns its labeler."""
        return read_any_labeler(self.unit.labeler)

    def final(self, shard: int) -> tuple[list[str], FinalScores]:
        """Returns a shard's image ids and final scores, compared with their hash."""
        sha256 = self.states[2][shard]
        if not self.reader.has_final(shard, sha256):
            raise self._incomplete(self.unit.final(shard))
        return self.reader.final(shard, sha256)

    def labels(self) -> Iterator[ShardLabels]:
        """Yields the labels of each shard; holds one shard at a time."""
        for shard in range(len(self.sizes)):
            final = storage.read_table(self.unit.final(shard), ["image_id", self.primary])
            labels = storage.read_table(self.unit.labels(shard), ["probability", "present"])
            scores = matrix(final[self.primary], len(self.classes))
            ids, uris = final["image_id"].to_pylist(), self.uris(shard)
            yield ShardLabels(
                ids,
                [uris[image_id] for image_id in ids],
                labels["probability"].to_numpy().reshape(scores.shape),
                labels["present"].to_numpy().reshape(scores.shape),
                scores,
            )

    def table(self, kind: TableKind, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns one of its tables, or some of its columns, with all shards in order."""

        def read(shard: int) -> pa.Table:
            url = getattr(self.unit, kind)(shard)
            try:
                return storage.read_table(url, columns)
            except FileNotFoundError:
                raise self._incomplete(url) from None
            except KeyError as error:
                raise UserError(f"{url}: {error.args[0]}; check the columns.") from None

        with ThreadPoolExecutor(READERS) as readers:
            return pa.concat_tables(readers.map(read, range(len(self.sizes))))

    def ids(self, shard: int) -> list[str]:
        """Returns the ids of a shard's images, unreadable ones included."""
        found: list[str] = self._images(shard, ["image_id"])["image_id"].to_pylist()
        return found

    def uris(self, shard: int) -> dict[str, str]:
        """Returns where each image of a shard is, without keys."""
        rows = self._images(shard, ["image_id", "uri"])
        uris = map(storage.without_secrets, rows["uri"].to_pylist())
        return dict(zip(rows["image_id"].to_pylist(), uris, strict=True))

    def _images(self, shard: int, columns: list[str]) -> Any:
        return read_images(self.data, shard, columns)

    def _state(self, stage: str, number: int, kind: Any) -> tuple[Any, list[str], str]:
        url = self.unit.state(stage, number)
        found: Any = reduce_checkpoints.load_any(url, kind)
        if found is None:
            raise self._incomplete(url)
        state, hashes, key = found
        return state, hashes, key

    def _incomplete(self, url: str) -> UserError:
        return UserError(
            f"{url} is missing, damaged or of another reduce; run `sparc-dist verify RUN`, and "
            "then start the run again: it keeps the scores and computes the rest."
        )


def open_unit(
    root: str, dataset: str | None = None, backbone: str | None = None, deciding: bool = False
) -> FinishedUnit:
    """Opens a unit of the run at ``root``; a name may be left out where there is only one.

    deciding: whether its decisions may be half written, because they are about to be replaced
    """
    layout = RunLayout(root)
    config = read_record(layout)["config"]
    name, model = _chosen(root, config, dataset, backbone)
    data = layout.dataset(name)
    unit = data.unit(model)
    metrics = read_metrics(unit, deciding)
    if metrics is None:
        raise UserError(
            f"{name} × {model} of {storage.without_secrets(root)} is not finished; start the "
            "run again to finish it."
        )
    facts = read_facts(unit.labeler)
    classes, background = facts["classes"], facts["background"]
    return FinishedUnit(data, unit, classes, len(background), metrics["primary"], metrics, config)


def open_labeler(place: str, dataset: str | None = None, backbone: str | None = None) -> AnyLabeler:
    """Opens a labeler, named by its file or by a run that has it."""
    if place.endswith(".safetensors"):
        return read_any_labeler(place)
    return open_unit(place, dataset, backbone).labeler()


def _chosen(
    root: str, config: dict[str, Any], dataset: str | None, backbone: str | None
) -> UnitKey:
    """Returns the only unit with the given names."""
    datasets, backbones = (
        [part["name"] for part in config[key]] for key in ("datasets", "backbones")
    )
    names = [datasets, existing_units(RunLayout(root), datasets, backbones)]
    for what, given, known in zip(("dataset", "backbone"), (dataset, backbone), names, strict=True):
        if given is not None and given not in known:
            raise UserError(
                f"There is no {what} {quoted(given)} in the run at "
                f"{storage.without_secrets(root)}; choose one of {', '.join(known)}."
            )
    found = list(_matching(names, dataset, backbone))
    if len(found) > 1:
        units = ", ".join(" × ".join(key) for key in found)
        raise UserError(f"The run has several units ({units}); name a dataset and a backbone.")
    return found[0]


def _matching(
    names: list[list[str]], dataset: str | None, backbone: str | None
) -> Iterator[UnitKey]:
    for key in product(*names):
        if dataset in (None, key[0]) and backbone in (None, key[1]):
            yield key[0], key[1]


@dataclass(frozen=True)
class Run:
    """A run at ``root``, finished or not; everything is read from storage when it is asked for.

    The tables are those of a unit's files, all shards one below the other. ``dataset`` and
    ``backbone`` may be left out where there is only one; ``columns`` limits what is kept in memory.
    A unit that is not finished raises UserError.
    """

    root: str

    @property
    def units(self) -> list[UnitStatus]:
        """The status of each unit, in the order of the config."""
        return status(self.root)

    @property
    def metrics(self) -> dict[UnitKey, dict[str, Any]]:
        """The metrics of the finished units, by data set and backbone."""
        return self._results().metrics

    @property
    def failures(self) -> dict[UnitKey, str]:
        """Why other units failed, by data set and backbone."""
        return self._results().failures

    def unit(self, dataset: str | None = None, backbone: str | None = None) -> FinishedUnit:
        """Returns a finished unit: its ``classes``, ``metrics``, ``labeler()`` and more."""
        return open_unit(self.root, dataset, backbone)

    def final(
        self,
        dataset: str | None = None,
        backbone: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Returns the final scores: image_id, and a list of N numbers for each method."""
        return self.unit(dataset, backbone).table("final", columns)

    def labels(
        self,
        dataset: str | None = None,
        backbone: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Returns a row per image and class: image_id, class, probability, present."""
        return self.unit(dataset, backbone).table("labels", columns)

    def scores(
        self,
        dataset: str | None = None,
        backbone: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Returns image_id and lists of numbers: singleton, auxiliary, compound, embedding.

        Only those that the run's ``store`` keeps.
        """
        return self.unit(dataset, backbone).table("scores", columns)

    def errors(
        self,
        dataset: str | None = None,
        backbone: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Returns the images that could not be read: image_id, uri, error."""
        return self.unit(dataset, backbone).table("errors", columns)

    def _results(self) -> Results:
        layout = RunLayout(self.root)
        return Results.read(layout, read_record(layout))


def open_run(uri: str | os.PathLike[str]) -> Run:
    """Opens a run, named by its folder, its URL or its config; raises UserError if there is none.

    It may be under way or have failed: ``units`` says what is finished.
    """
    place = os.fspath(uri)
    run = Run(load_config(place).output if place.endswith((".yaml", ".yml")) else place)
    read_record(RunLayout(run.root))
    return run
