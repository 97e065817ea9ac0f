"""Every answer a store may give, to every request that a command makes, once and always.

    python -m tests.faults.matrix [--scenario run] [--operation get] [--file run.json]
                                  [--answer 403] [--once | --always] [--jobs N]

After each fault no file is lost, the command has succeeded or said what failed, and the same
command without faults ends with the same results as if nothing had happened.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any

from sparc_dist.runs.tables import aligned
from tests.faults.scenarios import Ended, Files, Scenario, execute, prepare, store
from tests.support.command import RESULTS
from tests.support.faulty_s3 import ANSWERS, Ask, FaultyS3, Rule

#: A store that passes over these must not fail a command.
PASSING = {"429", "500", "503", "time-out", "truncated", "reset", "lost"}
#: The store forbids listing, so it refuses to tell of missing files: a command must succeed.
HIDDEN = Ask("any", "any", False)
#: Files that come and go in a run: of its lease, and of the check that it may write.
PASSING_FILES = re.compile(r"access-check|lease")


@dataclass(frozen=True)
class Case:
    """A scenario and what goes wrong in it."""

    scenario: str
    ask: Ask
    answer: str
    always: bool

    def __str__(self) -> str:
        """Returns the options that repeat it."""
        found = "" if self.ask.found else " --missing"
        return (
            f"--scenario {quote(self.scenario)} --operation {self.ask.operation}{found} "
            f"--file {quote(self.ask.file)} --answer {self.answer} "
            f"--{'always' if self.always else 'once'}"
        )

    @property
    def must_succeed(self) -> bool:
        """Whether the command has to end as it does without the fault."""
        return self.ask == HIDDEN or (self.answer in PASSING and not self.always)


@dataclass(frozen=True)
class Clean:
    """What a scenario does without faults. again: how its command ends a second time."""

    ended: Ended
    again: Ended
    after: Files
    asks: tuple[Ask, ...]
    deleted: frozenset[str]


@dataclass(frozen=True)
class Outcome:
    """What became of a case: "succeeded", "told" or "violated", and why."""

    case: Case
    verdict: str
    why: tuple[str, ...]
    said: str
    struck: int
    seconds: float


@dataclass
class Matrix:
    """Tries cases on a store. tried: problems of a second start, by the state it found."""

    server: FaultyS3
    scenarios: dict[str, Scenario]
    cleans: dict[str, Clean] = field(default_factory=dict)
    tried: dict[tuple[str, bytes], list[str]] = field(default_factory=dict)

    def clean(self, name: str) -> Clean:
        """Returns what a scenario does without faults."""
        if name not in self.cleans:
            scenario = self.scenarios[name]
            self.server.start(scenario.start)
            ended = execute(scenario.command)
            after, deleted = self.server.files(), frozenset(self.server.deleted())
            asks = tuple(dict.fromkeys(ask for ask, _ in self.server.asked))
            again = execute(scenario.command)
            self.cleans[name] = Clean(ended, again, after, asks, deleted)
        return self.cleans[name]

    def cases(self, names: Sequence[str]) -> list[Case]:
        """Returns all cases of some scenarios."""
        return [
            Case(name, ask, answer, always)
            for name in names
            for ask in (*self.clean(name).asks, HIDDEN)
            for answer in _answers(ask)
            for always in ((True,) if ask == HIDDEN else (False, True))
        ]

    def attempt(self, case: Case) -> Outcome:
        """Tries a case."""
        begun = time.monotonic()
        scenario = self.scenarios[case.scenario]
        if case.ask == HIDDEN:
            self.server.start(scenario.start)
            self.server.hide()
        else:
            self.server.start(scenario.start, Rule(case.ask, case.answer, case.always))
        ended = execute(scenario.command)
        struck, deleted, now = self.server.struck, self.server.deleted(), self.server.files()
        good = self._is_same_end(case, ended)
        why = (
            *self._loss(case, deleted, now),
            *self._words(case, ended, good),
            *self._results(case, now, good),
            *self._second_start(case, now),
        )
        verdict = "violated" if why else "succeeded" if good else "told"
        return Outcome(case, verdict, why, ended.said, struck, time.monotonic() - begun)

    def _is_same_end(self, case: Case, ended: Ended) -> bool:
        """Whether the command ended as without faults; a refusal has to be the same one."""
        clean = self.clean(case.scenario).ended
        return ended.code == clean.code and (not clean.code or ended.said == clean.said)

    def _loss(self, case: Case, deleted: set[str], now: Files) -> Iterator[str]:
        start, clean = self.scenarios[case.scenario].start, self.clean(case.scenario)
        for key in sorted(deleted - clean.deleted):
            if not PASSING_FILES.search(key):
                yield f"deleted: {key}"
        for key, content in start.items():
            if key not in now and key not in deleted and key in clean.after:
                yield f"lost: {key}"
            elif key in now and _is_result(key):
                if now[key] not in (content, clean.after.get(key)):
                    yield f"spoilt: {key}"

    def _words(self, case: Case, ended: Ended, good: bool) -> Iterator[str]:
        last = "\n".join(ended.said.strip().splitlines()[-3:])
        if "Traceback" in ended.said:
            yield f"traceback: {last}"
        if good:
            return
        if case.must_succeed:
            yield f"must succeed: exit code {ended.code}: {last}"
        elif ended.code not in (1, 2):
            yield f"no end as planned: exit code {ended.code}: {last}"
        elif not re.search(r"s3://runs|" + re.escape(case.ask.file.rpartition("/")[2]), ended.said):
            yield f"not named: exit code {ended.code}: {last}"

    def _results(self, case: Case, now: Files, good: bool) -> Iterator[str]:
        if good:
            yield from _differences("wrong result", self.clean(case.scenario).after, now)

    def _second_start(self, case: Case, now: Files) -> list[str]:
        """Returns what is wrong after the same command without faults."""
        state = case.scenario, _digest(now)
        if state not in self.tried:
            clean = self.clean(case.scenario)
            self.server.obey(None)
            ended = execute(self.scenarios[case.scenario].command)
            wrong = list(_differences("wrong later", clean.after, self.server.files()))
            if ended.code not in (clean.ended.code, clean.again.code):
                wrong.append(f"fails later: exit code {ended.code}: {ended.said[-300:]}")
            self.tried[state] = wrong
        return self.tried[state]


def _answers(ask: Ask) -> list[str]:
    """Returns the answers that make a difference to a request."""
    if ask == HIDDEN:
        return ["403"]
    left_out = {
        "truncated": ask.operation not in ("get", "list"),
        "lost": ask.operation not in ("put", "delete"),
        "404": not ask.found and ask.operation != "list",  # the right answer
    }
    return [answer for answer in ANSWERS if not left_out.get(answer)]


def _is_result(key: str) -> bool:
    """Whether a file is a result, which has the same bytes whatever happened on the way."""
    return not {*RESULTS, "labels.csv", "exported.csv"}.isdisjoint(key.split("/"))


def _differences(what: str, expected: Files, now: Files) -> Iterator[str]:
    for key in sorted(filter(_is_result, {*expected, *now})):
        if expected.get(key) != now.get(key):
            state = "missing" if key not in now else "new" if key not in expected else "other bytes"
            yield f"{what}: {key}: {state}"


def _digest(files: Files) -> bytes:
    """Returns a hash of a bucket; numbers in texts, such as times, make no difference."""
    found = hashlib.sha256()
    for key, content in files.items():
        text = key.endswith((".json", ".html", ".md", ".csv"))
        found.update(f"{key}\n".encode())
        found.update(re.sub(rb"\d+", b"0", content) if text and not _is_result(key) else content)
    return found.digest()


def sample(cases: Sequence[Case]) -> list[Case]:
    """Returns few cases, in which every scenario, request and kind of file meets every answer."""
    seen: set[Any] = set()
    chosen = []
    for case in Random(24).sample(cases, len(cases)):
        operation, file, found = case.ask
        shown = {
            (case.scenario, case.answer),
            (operation, case.answer, case.always),
            (operation, found, file.partition("/")[2]),
            *([case.scenario] if case.ask == HIDDEN else []),
        }
        if not shown <= seen:
            seen |= shown
            chosen.append(case)
    return chosen


def table(outcomes: Sequence[Outcome], column: str) -> str:
    """Returns the counts of the outcomes by the scenario or the answer."""
    counts = Counter((getattr(o.case, column), o.verdict) for o in outcomes)
    rows = [(column, "cases", "succeeded", "said what failed", "violations")]
    for name in dict.fromkeys(getattr(outcome.case, column) for outcome in outcomes):
        numbers = [counts[name, verdict] for verdict in ("succeeded", "told", "violated")]
        rows.append((name, *map(str, (sum(numbers), *numbers))))
    totals = [sum(int(row[place]) for row in rows[1:]) for place in range(1, 5)]
    return aligned([*rows, ("all", *map(str, totals))], "lrrrr")


def _work(matrix: dict[str, Any], cases: list[Case], outcomes: Any) -> None:
    """Tries cases in a process of their own."""
    with store() as server:
        tried = Matrix(server, **matrix)
        for case in cases:
            outcomes.put(tried.attempt(case))


def _parallel(matrix: Matrix, cases: list[Case], jobs: int) -> Iterator[Outcome]:
    """Yields the outcomes of cases as they are known."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    known = {"scenarios": matrix.scenarios, "cleans": matrix.cleans}
    workers = [
        context.Process(target=_work, args=(known, cases[start::jobs], queue), daemon=True)
        for start in range(jobs)
    ]
    for worker in workers:
        worker.start()
    for _ in cases:
        yield queue.get(timeout=300)


def _chosen(options: argparse.Namespace, cases: Sequence[Case]) -> list[Case]:
    """Returns the cases that the options name."""
    always = True if options.always else False if options.once else None
    return [
        case
        for case in cases
        if (options.operation or case.ask.operation) == case.ask.operation
        and (options.answer or case.answer) == case.answer
        and (options.file or "") in case.ask.file
        and always in (None, case.always)
        and not (options.missing and case.ask.found)
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.matrix")
    for name in ("scenario", "operation", "file", "answer"):
        parser.add_argument(f"--{name}")
    for name in ("once", "always", "missing", "sample", "verbose"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    return parser.parse_args()


def run_matrix() -> int:
    """Runs the cases that the options name; prints their counts and the violations."""
    options = _options()
    begun = time.monotonic()
    outcomes: list[Outcome] = []
    with TemporaryDirectory() as folder, store() as server:
        os.environ["SPARC_CACHE"] = f"{folder}/cache"
        matrix = Matrix(server, prepare(Path(folder), server))
        names = [options.scenario] if options.scenario else list(matrix.scenarios)
        cases = _chosen(options, matrix.cases(names))
        cases = sample(cases) if options.sample else cases
        print(f"{len(cases)} cases, {time.monotonic() - begun:.0f} s to prepare", file=sys.stderr)
        for outcome in _parallel(matrix, cases, options.jobs):
            outcomes.append(outcome)
            if outcome.why or options.verbose:
                print(f"{outcome.case}\n  {outcome.verdict}: " + "\n  ".join(outcome.why))
            if options.verbose:
                print(outcome.said)
            if len(outcomes) % 100 == 0:
                took = time.monotonic() - begun
                print(f"{len(outcomes)} of {len(cases)} cases, {took:.0f} s", file=sys.stderr)
    print(table(outcomes, "scenario"), table(outcomes, "answer"), sep="\n\n")
    classes = Counter(f"{o.case.answer} {why.split(':')[0]}" for o in outcomes for why in o.why)
    print("\n".join(f"{count} × {what}" for what, count in classes.most_common()))
    print(f"{sum(not o.struck and o.case.ask != HIDDEN for o in outcomes)} faults were not met")
    return int(any(outcome.why for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(run_matrix())
