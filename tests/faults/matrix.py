"""Every answer a store may give, to every request that a command makes, once and always.

    python -m tests.faults.matrix [--scenario run] [--operation get] [--file run.json]
                                  [--answer 403] [--once | --always] [--jobs N]

After each fault no file is lost, the command has succeeded or said what failed, and the same
command without faults ends with the same results as if nothing had happened. Faults that a command
must overcome are tried together first, one at each request; if that fails, one by one.
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
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
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
#: The scenarios that take less than a second.
QUICK = {"finished", "other config", "decide", "export", "report"}
#: Files that come and go in a run: of its lease, and of the check that it may write.
PASSING_FILES = re.compile(r"access-check|/lease")


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
    """What became of a case: "succeeded", "told" or "violated", and why.

    unsteady: what was wrong at a first attempt.
    """

    case: Case
    verdict: str
    why: tuple[str, ...]
    said: str
    struck: int
    seconds: float
    unsteady: tuple[str, ...] = ()


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
            self.tried[name, _digest(after)] = []
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

    def groups(self, cases: Sequence[Case]) -> list[list[Case]]:
        """Returns cases that are tried together first: those in which the command must succeed."""
        found: dict[Any, list[Case]] = {}
        for case in cases:
            alone = not case.must_succeed or case.ask == HIDDEN
            found.setdefault(case if alone else (case.scenario, case.answer), []).append(case)
        return list(found.values())

    def attempts(self, cases: Sequence[Case]) -> Iterator[Outcome]:
        """Yields the outcomes of a group: of all faults in one start, or of each in its own."""
        if len(cases) > 1:
            together = self.attempt(cases)
            if not together.why and together.struck == len(cases):
                took = together.seconds / len(cases)
                yield from (replace(together, case=case, struck=1, seconds=took) for case in cases)
                return
        for case in cases:
            outcome = self.attempt([case])
            if outcome.why:  # on a busy machine a store may seem silent: only what happens again
                self.tried = {state: wrong for state, wrong in self.tried.items() if not wrong}
                outcome = replace(self.attempt([case]), unsteady=outcome.why)
            yield outcome

    def attempt(self, cases: Sequence[Case]) -> Outcome:
        """Tries a case, or several with the same answer at once."""
        begun, case = time.monotonic(), cases[0]
        scenario = self.scenarios[case.scenario]
        rule = Rule(frozenset(case.ask for case in cases), case.answer, case.always)
        self.server.start(scenario.start, rule)
        if case.ask == HIDDEN:
            self.server.hide()
        ended = execute(scenario.command)
        struck, deleted, now = len(self.server.struck), self.server.deleted(), self.server.files()
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
            if key not in {*now, *deleted} and key in clean.after:
                yield f"lost: {key}"
            elif _is_result(key) and now.get(key, content) not in (content, clean.after.get(key)):
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
            then = self.server.files()
            wrong = [f"lost later: {key}" for key in clean.after if key not in then]
            wrong += _differences("wrong later", clean.after, then)
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
    parts = {*key.split("/")}
    return "reduce" not in parts and not parts.isdisjoint({*RESULTS, "labels.csv", "exported.csv"})


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
    """Returns few cases in which every scenario and kind of file is met, and all that is asked.

    Each operation meets every answer. Cases of quick scenarios come first.
    """
    seen: set[Any] = set()
    chosen = []
    mixed = Random(24).sample(cases, len(cases))
    for case in sorted(mixed, key=lambda case: case.scenario not in QUICK):
        operation, file, _ = case.ask
        shown = {
            case.scenario,
            (operation, case.answer),
            (case.answer, case.always),
            re.sub(".*/report/.*", "report", file).rpartition("/")[2],
            (case.scenario, case.ask == HIDDEN),
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


def _classes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yields the kinds of violations, each with its number and one case of it."""
    found: dict[str, list[Case]] = {}
    for outcome in outcomes:
        for what in {why.partition(":")[0] for why in outcome.why}:
            found.setdefault(f"{outcome.case.answer} {what}", []).append(outcome.case)
    for what, cases in sorted(found.items(), key=lambda item: -len(item[1])):
        yield f"{len(cases)} × {what}, such as {cases[0]}"


def _work(known: dict[str, Any], groups: Any, outcomes: Any) -> None:
    """Tries groups of cases, in a process of its own, until there are none."""
    with store() as server:
        matrix = Matrix(server, **known)
        for cases in iter(groups.get, None):
            for outcome in matrix.attempts(cases):
                outcomes.put(outcome)


def _parallel(matrix: Matrix, cases: list[Case], jobs: int) -> Generator[Outcome, None, None]:
    """Yields the outcomes of cases as they are known."""
    context = multiprocessing.get_context("spawn")
    groups, outcomes = context.Queue(), context.Queue()
    for group in [*matrix.groups(cases), *[None] * jobs]:
        groups.put(group)
    known = {"scenarios": matrix.scenarios, "cleans": matrix.cleans}
    try:
        for _ in range(jobs):
            context.Process(target=_work, args=(known, groups, outcomes), daemon=True).start()
        for _ in cases:
            yield outcomes.get(timeout=600)
    finally:
        groups.cancel_join_thread()
        for worker in multiprocessing.active_children():
            worker.kill()  # commands take other signals for their own end, and the next one starts


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
        with closing(_parallel(matrix, cases, options.jobs)) as found:
            for outcome in found:
                outcomes.append(outcome)
                if outcome.why or options.verbose:
                    print(f"{outcome.case}\n  {outcome.verdict}: " + "\n  ".join(outcome.why))
                if options.verbose:
                    print(outcome.said)
                if len(outcomes) % 100 == 0:
                    took = time.monotonic() - begun
                    print(f"{len(outcomes)} of {len(cases)} cases, {took:.0f} s", file=sys.stderr)
    print(table(outcomes, "scenario"), table(outcomes, "answer"), sep="\n\n")
    print("\n", "\n".join(_classes(outcomes)), sep="")
    for outcome in outcomes:
        if outcome.unsteady and not outcome.why:
            print(f"only once: {outcome.case}", *outcome.unsteady, sep="\n  ")
    print(f"{sum(not o.struck and o.case.ask != HIDDEN for o in outcomes)} faults were not met")
    return int(any(outcome.why for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(run_matrix())
