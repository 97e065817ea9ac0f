"""Captions such as the web has: some of what is in the scene, in one of many wordings."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cache

import numpy as np

# Wordings that say how a picture looks: used only where they are true. The other odd words of
# the templates (origami, plastic, itap ...) are used anywhere, as a web caption's noise.
VISUAL_WORDS = (
    "dark", "bright", "blurry", "black and white", "pixelated", "low resolution",
    "jpeg corrupted", "bad", "hard to see", "small", "large", "close-up", "many", "sketch",
    "drawing", "doodle", "painting", "art", "rendition", "cartoon", "video game", "sculpture",
    "embroidered", "graffiti", "tattoo",
)  # fmt: skip
_NOUNS = frozenset(VISUAL_WORDS[VISUAL_WORDS.index("sketch") :]) - {"embroidered"}
_PLURALS = {
    "bus": "buses", "bench": "benches", "fish": "fish", "sheep": "sheep", "person": "people",
}  # fmt: skip
_FRAMES = ("a photo of {}", "a picture of {}", "photo of {}", "{}.", "there is {}")
_PAIRS = (
    "{} and {}", "{} and {}", "{} and {}", "{}, {}", "{} with {}", "{} next to {}",
    "{} near {}", "{} beside {}", "{} or {}",
)  # fmt: skip
_TRIPLETS = ("{}, {}, and {}", "{}, {}, and {}", "{}, {} and {}", "{} and {} with {}", "{} {} {}")
_NUMBERS = (0.32, 0.38, 0.3)  # how often one, two or three objects are mentioned
_NOTHING = 0.05  # share of captions that name no object at all


@dataclass(frozen=True)
class Mention:
    """A class that can be seen: how many objects of it, on what share of the picture."""

    name: str
    count: int
    area: float


def plural(name: str) -> str:
    """The name for several objects of the class."""
    return _PLURALS.get(name, name + "s")


def describe(seen: Sequence[Mention], place: str, looks: Set[str], rng: np.random.Generator) -> str:
    """A caption that names one to three of the classes seen, large ones more often.

    place is the phrase that names the setting, looks are those VISUAL_WORDS that hold for the
    whole picture.
    """
    if not seen or rng.random() < _NOTHING:
        return _setting(place, looks, rng)
    number = min(len(seen), 1 + int(rng.choice(3, p=_NUMBERS)))
    salience = np.sqrt([mention.area for mention in seen])
    chosen = rng.choice(len(seen), number, replace=False, p=salience / salience.sum())
    mentions = [seen[index] for index in chosen]
    text = _one(mentions[0], looks, rng) if number == 1 else _several(mentions, looks, rng)
    return f"{text.rstrip('.')} {place}" if rng.random() < 0.15 else text


def _setting(place: str, looks: Set[str], rng: np.random.Generator) -> str:
    return f"a {_look(looks, rng)} {place}" if looks else f"a photo {place}"


def _look(looks: Set[str], rng: np.random.Generator) -> str:
    """One of the looks as a noun: a sketch is one, dark is not."""
    look = _pick(sorted(looks), rng)
    return look if look in _NOUNS else f"{look} photo"


def _one(mention: Mention, looks: Set[str], rng: np.random.Generator) -> str:
    if rng.random() < 0.3:
        return _phrase(mention, rng)
    holds = set(looks)
    if mention.count > 2:
        holds.add("many")
    if mention.area > 0.12:
        holds |= {"large", "close-up"}
    if mention.area < 0.03:
        holds |= {"small", "hard to see"}
    fitting = [text for text, words in _templates() if words <= holds]
    telling = [text for text, words in _templates() if words and words <= holds]
    text = _pick(telling if telling and rng.random() < 0.4 else fitting, rng)
    return text.format(plural(mention.name) if "many" in text else mention.name)


@cache
def _templates() -> tuple[tuple[str, Set[str]], ...]:
    """CLIP's templates, each with the VISUAL_WORDS in it."""
    from open_clip import OPENAI_IMAGENET_TEMPLATES  # takes seconds, and only captions need it

    texts = [make("{}") for make in OPENAI_IMAGENET_TEMPLATES]
    return tuple(
        (text, frozenset(word for word in VISUAL_WORDS if f" {word} " in f" {text.rstrip('.')} "))
        for text in texts
    )


def _several(mentions: Sequence[Mention], looks: Set[str], rng: np.random.Generator) -> str:
    bare = rng.random() < 0.5
    phrases = [mention.name if bare else _phrase(mention, rng) for mention in mentions]
    text = _pick(_PAIRS if len(phrases) == 2 else _TRIPLETS, rng).format(*phrases)
    if rng.random() < 0.3:
        text = _pick(_FRAMES, rng).format(text)
    elif looks and rng.random() < 0.35:
        text = f"{_look(looks, rng)} of {text}"
    return text


def _phrase(mention: Mention, rng: np.random.Generator) -> str:
    if mention.count > 1 and rng.random() < 0.6:
        number = "two" if mention.count == 2 else "many"
        return _pick((number + " {}", "{}", "some {}"), rng).format(plural(mention.name))
    article = "an" if mention.name[0] in "aeiou" else "a"
    return _pick(("{}", article + " {}", "the {}"), rng).format(mention.name)


def _pick(choices: Sequence[str], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]
