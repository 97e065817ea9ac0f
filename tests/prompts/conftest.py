from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.llm_server import Model, serving


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """A language model's server on loopback."""
    monkeypatch.setenv("no_proxy", "*")
    with serving() as server:
        yield server
