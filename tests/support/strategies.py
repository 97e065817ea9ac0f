"""What hypothesis tries on the program: values that do not belong, bytes that are damaged."""

from __future__ import annotations

from datetime import date
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st


def bounded(examples: int) -> settings:
    """So many examples, the same ones on every machine; a loaded machine fails no test."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


#: Texts that have broken something somewhere.
TRAPS = [
    "",
    " ",
    "\0",
    "a\nb",
    "a\r\nb",
    "\ud800",
    "\udcff",
    "\u2028",
    "~",
    "..",
    "/",
    "://",
    "s3://",
    "a::b",
    "nan",
    "-1",
    "9" * 5000,
    "cat;dog",
    "cat,dog",
    "cat and dog",
    "x" * 3000,
]
texts = st.sampled_from(TRAPS) | st.text(max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**400, 10**401)
    | st.floats()
    | texts
    | st.dates(date(1, 1, 1))
)
#: Whatever YAML or JSON can spell.
junk: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def changed(draw: st.DrawFn, value: Any, with_what: st.SearchStrategy[Any] = junk) -> Any:
    """A nested value with one to three places dropped, replaced or added to."""
    for _ in range(draw(st.integers(1, 3))):
        value = _changed(draw, value, with_what)
    return value


def _changed(draw: st.DrawFn, value: Any, with_what: st.SearchStrategy[Any]) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value, key=str)))
        deed = draw(st.sampled_from(["drop", "within", "within", "add"]))
        if deed == "drop":
            return {name: item for name, item in value.items() if name != key}
        if deed == "add":
            return {**value, draw(texts): draw(with_what)}
        return {**value, key: _changed(draw, value[key], with_what)}
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _changed(draw, value[place], with_what), *value[place + 1 :]]
    return draw(with_what)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes of which some are changed, cut out, or put in."""
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from([0, 1, 1, 4, 64, len(content)]))
        content = content[:place] + draw(st.binary(max_size=8)) + content[place + length :]
    return content
