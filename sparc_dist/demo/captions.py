"""Captions like those on the web: they name part of a scene, in one of many wordings."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cache

import numpy as np

# Words that say how a picture looks: used only where they are true. The other odd words of the
# templates (origami, plastic, itap ...) are used anywhere, as noise like that of web captions.
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
_NUMBERS = (0.32, 0.38, 0.3)  # probabilities of naming one, two or three classes
_NOTHING = 0.05  # share of captions that name no class


@dataclass(frozen=True)
class Mention:
    """A visible class. count: number of its objects. area: their share of the picture."""

    name: str
    count: int
    area: float


def plural(name: str) -> str:
    """Returns the plural of a class name."""
    return _PLURALS.get(name, name + "s")


def describe(seen: Sequence[Mention], place: str, words: Set[str], rng: np.random.Generator) -> str:
    """Returns a caption that names one to three of the visible classes, large ones more often.

    place: the phrase that names the setting. words: the VISUAL_WORDS that are true of the whole
    picture.
    """
    if not seen or rng.random() < _NOTHING:
        return _setting(place, words, rng)
    number = min(len(seen), 1 + int(rng.choice(3, p=_NUMBERS)))
    salience = np.sqrt([mention.area for mention in seen])
    chosen = rng.choice(len(seen), number, replace=False, p=salience / salience.sum())
    mentions = [seen[index] for index in chosen]
    text = _one(mentions[0], words, rng) if number == 1 else _several(mentions, words, rng)
    return f"{text.rstrip('.')} {place}" if rng.random() < 0.15 else text


def _setting(place: str, words: Set[str], rng: np.random.Generator) -> str:
    return f"a {_medium(words, rng)} {place}" if words else f"a photo {place}"


def _medium(words: Set[str], rng: np.random.Generator) -> str:
    """Returns one of the visual words as a noun, such as "sketch" or "dark photo"."""
    word = _pick(sorted(words), rng)
    return word if word in _NOUNS else f"{word} photo"


def _one(mention: Mention, words: Set[str], rng: np.random.Generator) -> str:
    if rng.random() < 0.3:
        return _phrase(mention, rng)
    true = set(words)
    if mention.count > 2:
        true.add("many")
    if mention.area > 0.12:
        true |= {"large", "close-up"}
    if mention.area < 0.03:
        true |= {"small", "hard to see"}
    fitting = [text for text, needed in _templates() if needed <= true]
    visual = [text for text, needed in _templates() if needed and needed <= true]
    text = _pick(visual if visual and rng.random() < 0.4 else fitting, rng)
    return text.format(plural(mention.name) if "many" in text else mention.name)


@cache
def _templates() -> tuple[tuple[str, Set[str]], ...]:
    """Returns CLIP's templates, each with the VISUAL_WORDS in it."""
    from open_clip import OPENAI_IMAGENET_TEMPLATES  # takes seconds; only captions need it

    texts = [make("{}") for make in OPENAI_IMAGENET_TEMPLATES]
    return tuple(
        (text, frozenset(word for word in VISUAL_WORDS if f" {word} " in f" {text.rstrip('.')} "))
        for text in texts
    )


def _several(mentions: Sequence[Mention], words: Set[str], rng: np.random.Generator) -> str:
    bare = rng.random() < 0.5
    phrases = [mention.name if bare else _phrase(mention, rng) for mention in mentions]
    text = _pick(_PAIRS if len(phrases) == 2 else _TRIPLETS, rng).format(*phrases)
    if rng.random() < 0.3:
        text = _pick(_FRAMES, rng).format(text)
    elif words and rng.random() < 0.35:
        text = f"{_medium(words, rng)} of {text}"
    return text


def _phrase(mention: Mention, rng: np.random.Generator) -> str:
    if mention.count > 1 and rng.random() < 0.6:
        number = "two" if mention.count == 2 else "many"
        return _pick((number + " {}", "{}", "some {}"), rng).format(plural(mention.name))
    article = "an" if mention.name[0] in "aeiou" else "a"
    return _pick(("{}", article + " {}", "the {}"), rng).format(mention.name)


def _pick(choices: Sequence[str], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]
