"""The errors people meet, and how any exception becomes one line for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

#: The longest line that ``explain`` makes of an exception that is not ours.
LONGEST = 300

RESUME = "run the same command again to resume."
_LESS_MEMORY = (
    "lower resources.scorers or use larger machines and run the same command again; or lower "
    "shard_size or batch_size and start over with {overwrite}."
)
#: What to do about exceptions of Ray and torch, by type name: neither is imported for this.
_ADVICE = {
    "ray.data.exceptions.ExecutionTimeoutError": (
        "No shard was finished within resources.no_progress_seconds; raise it if the machine is "
        "slow, or give the cluster what it lacks."
    ),
    "ray.exceptions.OutOfMemoryError": f"A machine ran out of memory repeatedly; {_LESS_MEMORY}",
    "ray.exceptions.OutOfDiskError": (
        f"Ray has no disk space left for spilling; free some in its temporary folder and {RESUME}"
    ),
    "ray.exceptions.ObjectStoreFullError": (
        f"Ray's object store is full; start Ray with a larger one, or {_LESS_MEMORY}"
    ),
    "ray.exceptions.NodeDiedError": f"A machine of the cluster was lost; {RESUME}",
    "ray.exceptions.LocalRayletDiedError": (
        f"Ray's raylet on this machine ended, most likely killed for lack of memory; {RESUME}"
    ),
    "ray.exceptions.WorkerCrashedError": (
        f"A worker was killed repeatedly, most likely for lack of memory; {_LESS_MEMORY}"
    ),
    "ray.exceptions.ActorDiedError": (
        f"A worker with a model died, most likely for lack of memory; {_LESS_MEMORY}"
    ),
    "torch.OutOfMemoryError": (
        "the GPU's memory is full; set resources.gpu_memory_gb to what it has, lower "
        "resources.backbones_per_scorer, or lower batch_size and start over with {overwrite}."
    ),
}
#: Control characters, those that turn the direction of writing, and halves of characters.
_CONTROLS = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
#: Ray's wrapper of what a task raised: its text is a traceback, the error itself is its cause.
_WRAPPER = "ray.exceptions.RayTaskError"


class UserError(Exception):
    """An error the user can fix: its text says what was wrong, where, and what to do.

    Shown without a traceback; the command exits with code 2.
    """


class Option(NamedTuple):
    """An option or a field of a config that a message names, in the terms of its reader.

    name: that of a config, or of ``sparc-dist run``. Other commands and functions have their own
    terms, see ``in_terms``.
    """

    name: str

    def __str__(self) -> str:
        return _terms.get({}).get(self, self.name)


Terms = Mapping[Option, str]
_terms: ContextVar[Terms] = ContextVar("terms")
OVERWRITE = Option("--overwrite")
NEW_OUTPUT = Option("--to NEW")
OR_WAIT = Option(", or wait for that with --wait")


@contextmanager
def in_terms(terms: Terms) -> Iterator[None]:
    """Makes messages name options as a command or a function calls them.

    What workers of a cluster report has the terms of a config.
    """
    before = _terms.set(terms)
    try:
        yield
    finally:
        _terms.reset(before)


def explain(error: BaseException, subject: object = "") -> str:
    """Returns one line for people about any exception.

    A UserError speaks for itself, wherever on the cluster it was raised. ``subject``, such as
    "Backbone RN50", starts the line about any other.
    """
    prefix = f"{subject}: " if subject else ""
    causes = list(chain_of_causes(error))
    for cause in causes:
        names = _type_names(cause)
        if isinstance(cause, UserError) and _WRAPPER not in names:
            return str(cause)
        for name in names:
            if name in _ADVICE:
                return prefix + _ADVICE[name].format(overwrite=OVERWRITE)
    return f"{prefix}{type(causes[-1]).__name__}: {one_line(causes[-1])}"


def one_line(error: BaseException, limit: int = LONGEST) -> str:
    """Returns an exception's text on one line, at most ``limit`` characters.

    Of a text that holds a traceback only the last line counts.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback") for line in lines):
        lines = lines[-1:]
    return " ".join(" ".join(lines).split())[:limit] or type(error).__name__


def chain_of_causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception, what caused it, and so on; Ray keeps the cause in ``cause``."""
    seen: BaseException | None = error
    while isinstance(seen, BaseException):
        yield seen
        cause = getattr(seen, "cause", None)
        seen = cause if isinstance(cause, BaseException) else seen.__cause__


def printable(text: str, allowed: str = "") -> str:
    """Returns a text that does nothing to a terminal: control characters are escaped.

    They move the cursor, clear the screen, begin a line or turn the direction of writing, so that
    a name could forge what is read. allowed: those that stay.
    """
    return _CONTROLS.sub(
        lambda found: found[0] if found[0] in allowed else ascii(found[0])[1:-1], text
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the end of a message about a mistyped word: the known one most like it, if any."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(known), 1)
    return f"; did you mean {quoted(found[0])}?" if found else ""


def quoted(value: object) -> str:
    """Returns a user's value for use within a message: on one line, shortened when long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print numbers of more than 4,300 digits
        return "a giant number"
    except RecursionError:
        return "a list in a list in a list …"
    return text if len(text) <= 80 else f"{text[:60]}…"


def _type_names(error: BaseException) -> list[str]:
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
