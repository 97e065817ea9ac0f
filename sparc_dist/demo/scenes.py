"""Scenes of several objects, drawn from a seed: image, labels and captions.

Themes make some classes occur together. Objects of other themes, occlusion, clutter, light, blur
and noise make the scenes as hard to recognise as photos. Captions are like those on the web: they
name part of a scene, in one of many wordings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeVar

import numpy as np
from PIL import Image, ImageDraw

from sparc_dist.demo.objects import ANY, CLASSES, Colour, draw_object, shade
from sparc_dist.demo.rendering import render

T = TypeVar("T")

# Seeds of the splits. They never overlap, so no scene is in two of them.
SPLITS: dict[str, range] = {
    "train": range(0, 1_000_000),
    "cooccurrence": range(1_000_000, 1_100_000),
    "validation": range(2_000_000, 2_100_000),  # for tuning the scenes and the model
    "test": range(3_000_000, 3_100_000),  # used only after tuning
}
CAPTIONS = 6  # captions per scene, as several people would write them
_MIN_VISIBLE = 0.4  # share of an object's pixels that must be visible for it to be present
_SHAPES = ((160, 120), (160, 120), (120, 160), (176, 112), (136, 136))  # width, height
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
class Theme:
    """A setting: the phrase for it, its two background colours, and the classes found there."""

    place: str
    upper: Colour
    lower: Colour
    classes: tuple[str, ...]


THEMES = (
    Theme("on the street", (165, 190, 215), (110, 110, 112),
          ("car", "car", "bus", "bicycle", "traffic light", "fire hydrant", "house", "person")),
    Theme("in the living room", (215, 200, 175), (150, 110, 75),
          ("sofa", "sofa", "lamp", "clock", "potted plant", "cat", "cat", "dog")),
    Theme("in the kitchen", (225, 225, 210), (185, 150, 110),
          ("bottle", "cup", "apple", "banana", "cake", "pizza", "cup")),
    Theme("at the sea", (150, 200, 235), (55, 110, 165),
          ("boat", "boat", "bird", "umbrella", "fish", "fish", "person")),
    Theme("on the farm", (175, 205, 225), (120, 150, 70),
          ("sheep", "sheep", "horse", "horse", "house", "tree", "dog")),
    Theme("in the park", (160, 205, 235), (85, 150, 75),
          ("bench", "tree", "kite", "person", "bird", "bench", "kite", "bicycle")),
)  # fmt: skip


@dataclass(frozen=True)
class Composition:
    """How many objects a scene has, and the share of them that come from any theme."""

    fewest: int
    most: int
    off_theme: float

    def draw_classes(self, theme: Theme, rng: np.random.Generator) -> list[str]:
        """Returns the class of each object of a scene."""
        number = int(rng.integers(self.fewest, self.most + 1))
        pools = [CLASSES if rng.random() < self.off_theme else theme.classes for _ in range(number)]
        return [_pick(pool, rng) for pool in pools]


# CLIP is trained on pictures of all kinds, often with one main object, in which most classes occur
# with most others. The data set it is then used on is more crowded and has its own co-occurrence.
_WEB = Composition(1, 4, 0.5)
_TARGET = Composition(2, 6, 0.12)


@dataclass(frozen=True)
class Scene:
    """An RGB image. labels: the sorted indices into CLASSES of what is visible in it."""

    image: Image.Image
    labels: tuple[int, ...]
    _captions: Callable[[], tuple[str, ...]]

    @cached_property
    def captions(self) -> tuple[str, ...]:
        """The captions; written on first access, because only training needs them."""
        return self._captions()


def draw_scene(seed: int) -> Scene:
    """Returns the scene of a seed: the same pixels, labels and captions each time."""
    rng = np.random.default_rng(seed)
    theme = _pick(THEMES, rng)
    canvas = _Canvas(_background(theme if rng.random() < 0.7 else _pick(THEMES, rng), rng))
    composition = _WEB if seed in SPLITS["train"] else _TARGET
    _populate(canvas, composition.draw_classes(theme, rng), rng)
    seen = canvas.seen()
    image, words = render(canvas.image, rng)
    labels = sorted(CLASSES.index(mention.name) for mention in seen)

    def captions() -> tuple[str, ...]:
        return tuple(describe(seen, theme.place, words, rng) for _ in range(CAPTIONS))

    return Scene(image, tuple(labels), captions)


def _pick(choices: Sequence[T], rng: np.random.Generator) -> T:
    return choices[int(rng.integers(len(choices)))]


def _background(theme: Theme, rng: np.random.Generator) -> Image.Image:
    """Returns two fields of colour with a gradient each, and faint shapes on them."""
    width, height = _pick(_SHAPES, rng)
    horizon = int(height * rng.uniform(0.3, 0.7))
    fall = np.linspace(-1, 1, height)[:, None, None] * rng.normal(0, 18)
    fields = np.empty((height, width, 3))
    fields[:horizon] = np.add(theme.upper, rng.normal(0, 20, 3))
    fields[horizon:] = np.add(theme.lower, rng.normal(0, 20, 3))
    image = Image.fromarray(np.clip(fields + fall, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image, "RGBA")
    for _ in range(int(rng.integers(2, 8))):
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        spread = rng.uniform(4, 40, 2)
        tint = (*_pick(ANY, rng), int(rng.integers(25, 90)))
        figure = draw.rectangle if rng.random() < 0.5 else draw.ellipse
        figure((x, y, x + float(spread[0]), y + float(spread[1])), fill=tint)
    return image


class _Canvas:
    """A picture being drawn that knows which object each pixel shows."""

    def __init__(self, image: Image.Image) -> None:
        self.image = image
        self._owner = np.full((image.height, image.width), -1)
        self._names: list[str | None] = []
        self._areas: list[int] = []

    def paste(self, sprite: Image.Image, name: str | None, left: int, top: int) -> None:
        """Pastes an RGBA sprite in front of the rest. Clutter has no name."""
        solid = np.asarray(sprite.getchannel("A")) > 127
        y0, x0 = max(top, 0), max(left, 0)
        window = self._owner[y0 : max(top + sprite.height, 0), x0 : max(left + sprite.width, 0)]
        rows, columns = window.shape
        shown = solid[y0 - top :, x0 - left :][:rows, :columns]
        window[shown] = len(self._names)
        self._names.append(name)
        self._areas.append(int(solid.sum()))
        self.image.paste(sprite, (left, top), sprite)

    def seen(self) -> list[Mention]:
        """Returns the classes with at least one object that is sufficiently visible."""
        shown = np.bincount(self._owner[self._owner >= 0], minlength=len(self._names))
        visible: dict[str, list[int]] = {}
        for name, area, pixels in zip(self._names, self._areas, shown, strict=True):
            if name is not None and pixels >= _MIN_VISIBLE * area > 0:
                visible.setdefault(name, []).append(int(pixels))
        total = self._owner.size
        return [Mention(name, len(each), sum(each) / total) for name, each in visible.items()]


def _populate(canvas: _Canvas, names: Sequence[str], rng: np.random.Generator) -> None:
    """Pastes the objects, far ones first, and clutter in front."""
    width, height = canvas.image.size
    for name, depth in zip(names, np.sort(rng.random(len(names))), strict=True):
        size = min(width, height) * rng.uniform(0.28, 0.5) * (1 + 0.5 * depth)
        sprite = _sprite(name, size, rng)
        centre = height * (0.3 + 0.5 * depth + rng.normal(0, 0.12))
        left = int(rng.uniform(-0.15, 1.15) * (width - sprite.width))
        canvas.paste(sprite, name, left, int(centre - sprite.height / 2))
    for _ in range(int(rng.integers(0, 3))):
        sprite = _blob(rng)
        canvas.paste(sprite, None, int(rng.integers(-10, width)), int(rng.integers(-10, height)))


def _sprite(name: str, size: float, rng: np.random.Generator) -> Image.Image:
    """Returns an object of about this size in pixels, stretched, mirrored and turned a little."""
    sprite = draw_object(name, int(size * 1.6), rng)  # drawn larger, to soften the edges
    if rng.random() < 0.5:
        sprite = sprite.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if rng.random() < 0.7:
        angle = float(rng.normal(0, 10))
        sprite = sprite.rotate(angle, Image.Resampling.BILINEAR, expand=True)
    stretch = float(np.exp(rng.normal(0, 0.12)))
    wide, tall = sprite.width / 1.6 * stretch, sprite.height / 1.6 / stretch
    return sprite.resize((max(4, int(wide)), max(4, int(tall))), Image.Resampling.BILINEAR)


def _blob(rng: np.random.Generator) -> Image.Image:
    """Returns a shape of no class that hides what is behind it."""
    wide, tall = (int(side) for side in rng.integers(6, 42, 2))
    sprite = Image.new("RGBA", (wide, tall))
    colour = shade(_pick(ANY, rng), float(rng.uniform(0.6, 1.3)))
    corners = rng.uniform(0, 1, (int(rng.integers(3, 7)), 2)) * (wide, tall)
    ImageDraw.Draw(sprite).polygon([(float(x), float(y)) for x, y in corners], fill=colour)
    return sprite


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
        return f"a {_medium(words, rng)} {place}" if words else f"a photo {place}"
    number = min(len(seen), 1 + int(rng.choice(3, p=_NUMBERS)))
    salience = np.sqrt([mention.area for mention in seen])
    chosen = rng.choice(len(seen), number, replace=False, p=salience / salience.sum())
    mentions = [seen[index] for index in chosen]
    text = _one(mentions[0], words, rng) if number == 1 else _several(mentions, words, rng)
    return f"{text.rstrip('.')} {place}" if rng.random() < 0.15 else text


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
