"""Any exception becomes one line for people."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError, LocalRayletDiedError, OutOfMemoryError, RayTaskError

from sparc_dist.errors import OVERWRITE, Option, UserError, explain, in_terms, one_line, quoted


def wrapped(error: Exception) -> Exception:
    """An exception as Ray hands it from a task to the driver."""
    found: Exception = RayTaskError("work", "Traceback (most recent call last):\n  …", error)
    return found


def test_a_user_error_speaks_for_itself_wherever_it_was_raised() -> None:
    error = UserError("There is no such bucket; create it.")
    assert explain(error) == str(error)
    assert explain(wrapped(error), "Backbone b") == str(error)
    outer = RuntimeError("outer")
    outer.__cause__ = error
    assert explain(outer) == str(error)


def test_messages_name_options_in_the_terms_in_use() -> None:
    here = Option("backbones.0.weights")
    assert f"{here}, {OVERWRITE}" == "backbones.0.weights, --overwrite"
    with in_terms({OVERWRITE: "overwrite=True", here: "weights"}):
        error = UserError(f"{here}: start over with {OVERWRITE}.")
        assert explain(OutOfMemoryError("killed")).endswith("start over with overwrite=True.")
        assert explain(ValueError("x"), here) == "weights: ValueError: x"
    assert str(error) == "weights: start over with overwrite=True."
    assert str(OVERWRITE) == "--overwrite"


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OutOfMemoryError("worker killed"), "A machine ran out of memory repeatedly; lower"),
        (ActorDiedError(), "A worker with a model died"),
        (LocalRayletDiedError(), "Ray's raylet on this machine ended"),
    ],
)
def test_errors_of_ray_come_with_advice(error: Exception, advice: str) -> None:
    assert explain(error).startswith(advice)
    outer = ValueError("Ray Data says more")
    outer.__cause__ = error
    assert explain(outer).startswith(advice)


def test_any_other_error_is_named_on_one_line() -> None:
    assert explain(ValueError("a\n  b")) == "ValueError: a b"
    assert explain(KeyError()) == "KeyError: KeyError"
    assert len(explain(ValueError("x" * 1000))) < 400
    assert one_line(RuntimeError("Traceback (most recent call last):\n x\nboom: y")) == "boom: y"


def test_values_are_quoted_on_one_short_line() -> None:
    assert quoted("a\nb") == r"'a\nb'"
    assert len(quoted("x" * 1000)) < 80
    assert quoted(10**5000) == "a giant number"
    deep: list[object] = []
    for _ in range(10**5):
        deep = [deep]
    assert quoted(deep) == "a list in a list in a list …"
