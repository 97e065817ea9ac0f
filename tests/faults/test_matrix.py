"""A sample of the matrix of faults; `python -m tests.faults.matrix` tries all of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.matrix import Case, Matrix, sample
from tests.faults.scenarios import prepare, store

pytestmark = [pytest.mark.slow, pytest.mark.s3]
SCENARIOS = ["run", "resume", "finished", "other config", "decide", "label", "extend", "apply"]
SCENARIOS += ["export", "report"]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    with store() as server:
        yield Matrix(server, prepare(tmp_path_factory.mktemp("faults"), server))


@pytest.fixture(scope="module")
def cases(matrix: Matrix) -> list[Case]:
    return sample(matrix.cases(SCENARIOS))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_fault_loses_a_file_or_goes_unsaid(
    matrix: Matrix, cases: list[Case], scenario: str
) -> None:
    groups = matrix.groups([case for case in cases if case.scenario == scenario])
    tried = [outcome for group in groups for outcome in matrix.attempts(group)]
    assert tried
    wrong = [f"{outcome.case}: {why}" for outcome in tried for why in outcome.why]
    assert not wrong, "\n".join(wrong)
