"""Background classes: names that are scored like classes and never reported.

The image-level step compares a class with the others of its image; with few classes there is
nothing to compare with, so a vocabulary of other things is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from sparc_dist import storage
from sparc_dist.config import check_classes, letters, names_in, words_of
from sparc_dist.errors import UserError, quoted
from sparc_dist.prompts.matching import plurals, singulars

#: ``auto`` adds names if there are fewer classes than this …
ENOUGH_CLASSES = 40
#: … and as many as make this number of columns.
COLUMNS = 80

#: Names of the same thing.
SYNONYMS: tuple[tuple[str, ...], ...] = (
    ("person", "people", "human", "human being", "pedestrian"),
    ("man", "guy", "gentleman"),
    ("woman", "lady"),
    ("child", "kid"),
    ("baby", "infant", "toddler"),
    ("dog", "canine"),
    ("cow", "cattle"),
    ("snake", "serpent"),
    ("monkey", "ape"),
    ("car", "automobile", "auto"),
    ("airplane", "aeroplane", "plane", "aircraft", "jet", "airliner"),
    ("bicycle", "bike", "cycle"),
    ("motorcycle", "motorbike", "motor bike"),
    ("truck", "lorry"),
    ("bus", "coach"),
    ("helicopter", "chopper"),
    ("sofa", "couch", "settee", "loveseat"),
    ("refrigerator", "fridge"),
    ("television", "tv", "tv monitor", "tv set", "television set", "tv screen"),
    ("phone", "telephone", "cell phone", "mobile phone", "smartphone", "mobile"),
    ("laptop", "laptop computer", "notebook computer"),
    ("headphones", "headset", "earphones"),
    ("glasses", "eyeglasses", "spectacles"),
    ("handbag", "purse"),
    ("soccer ball", "football"),
    ("tennis racket", "tennis racquet", "racket", "racquet"),
    ("teddy bear", "teddy", "stuffed animal", "plush toy"),
    ("drum", "drum kit", "drum set"),
    ("ice cream", "icecream cone", "gelato"),
    ("house", "home"),
    ("skyscraper", "high rise", "highrise building"),
    ("windmill", "wind turbine"),
    ("statue", "sculpture"),
    ("street", "road"),
    ("road sign", "traffic sign", "street sign"),
    ("harbor", "harbour", "port", "marina"),
    ("supermarket", "grocery store", "grocery"),
    ("restaurant", "diner"),
    ("bathroom", "restroom", "washroom"),
    ("staircase", "stairs", "stairway"),
    ("beach", "seaside", "seashore"),
    ("mountain", "mountain range"),
    ("forest", "woodland"),
    ("meadow", "grassland", "grass", "field"),
    ("sunset", "sunrise", "dusk"),
    ("lightning", "thunderstorm"),
    ("fog", "mist", "haze"),
    ("snow", "snowfall"),
    ("fire", "flame", "blaze"),
    ("garden", "yard", "backyard"),
    ("fabric", "cloth", "textile"),
    ("wooden planks", "wood", "timber"),
    ("donut", "doughnut"),
    ("potted plant", "pot plant", "houseplant"),
)

ANIMALS = (
    *("dog", "cat", "horse", "cow", "sheep", "bird", "fish", "bear", "elephant", "monkey", "snake"),
    "butterfly",
)
VEHICLES = (
    *("car", "bus", "truck", "train", "boat", "airplane", "helicopter", "bicycle", "motorcycle"),
    "tractor",
)
FOOD = ("pizza", "apple", "banana", "bread", "cake", "salad", "ice cream", "mushroom", "fruit")

#: Things and their kinds: a thing overlaps with each of its kinds, and these not with each other.
KINDS: dict[str, tuple[str, ...]] = {
    "animal": ANIMALS,
    "mammal": ANIMALS,
    "pet": ("dog", "cat", "bird", "fish"),
    "vehicle": VEHICLES,
    "food": FOOD,
    "meal": FOOD,
    "fruit": ("apple", "banana", "orange", "lemon", "strawberry", "grapes", "pineapple"),
    "furniture": ("sofa", "chair", "table", "bed", "desk", "bookcase", "wardrobe", "cabinet"),
    "plant": ("tree", "flower", "potted plant", "cactus", "grass"),
    "building": ("house", "skyscraper", "castle", "church"),
    "person": ("man", "woman", "child", "baby", "boy", "girl", "face", "player", "rider"),
    "dog": ("puppy", "hound"),
    "cat": ("kitten",),
    "cow": ("bull", "calf", "ox"),
    "horse": ("pony", "foal"),
    "sheep": ("lamb", "ram"),
    "bird": ("duck", "eagle", "owl", "parrot", "pigeon", "seagull", "sparrow"),
    "bear": ("polar bear", "brown bear", "grizzly"),
    "car": ("taxi", "sports car", "police car"),
    "truck": ("pickup truck", "fire truck"),
    "train": ("locomotive", "tram", "subway train", "steam train"),
    "boat": ("ship", "sailboat", "sailing boat", "yacht", "canoe", "kayak", "ferry"),
    "chair": ("armchair", "office chair", "stool"),
    "table": ("dining table", "desk", "coffee table"),
    "lamp": ("street lamp", "desk lamp", "floor lamp"),
    "glasses": ("sunglasses",),
    "shoe": ("boot", "sneaker", "sandal"),
    "hat": ("cap", "helmet", "cowboy hat"),
    "soccer ball": ("ball", "sports ball"),
    "cup": ("mug", "teacup", "coffee cup"),
    "clock": ("alarm clock", "watch", "wall clock"),
    "laptop": ("computer", "notebook"),
    "tree": ("palm tree", "oak tree", "pine tree", "forest", "plant"),
    "flower": ("rose", "tulip", "sunflower", "plant"),
    "potted plant": ("plant", "cactus"),
    "house": ("building", "cottage", "villa"),
    "skyscraper": ("building",),
    "castle": ("building", "palace"),
    "church": ("building", "cathedral", "chapel"),
    "book": ("bookcase", "bookshelf"),
    "cake": ("birthday cake", "cupcake"),
    "road sign": ("stop sign",),
    "guitar": ("electric guitar", "bass guitar"),
    "piano": ("grand piano",),
    "painting": ("picture", "drawing"),
    "mountain": ("hill", "volcano"),
}


@cache
def general_vocabulary() -> tuple[str, ...]:
    """Returns the names for models that know everyday things; any first k of them are diverse."""
    content = files("sparc_dist.prompts").joinpath("vocabulary.txt").read_text(encoding="utf-8")
    return tuple(content.split("\n")[:-1])


def background_names(
    choice: str | Sequence[str], classes: Sequence[str], vocabulary: Sequence[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Returns the background classes, and a note on each given name that was left out.

    choice: ``auto``, ``none``, a text file with one name per line, or the names.
    """
    if choice == "none" or (choice == "auto" and len(classes) >= ENOUGH_CLASSES):
        return (), []
    overlapping = overlaps(classes)
    if choice == "auto":
        free = [name for name in vocabulary if letters(name) not in overlapping]
        return tuple(free[: COLUMNS - len(classes)]), []
    given = _read(choice) if isinstance(choice, str) else choice
    notes = [
        f"The background class {quoted(name)} was left out, because it overlaps with the class "
        f"{quoted(overlapping[letters(name)])}."
        for name in given
        if letters(name) in overlapping
    ]
    return tuple(name for name in given if letters(name) not in overlapping), notes


def overlaps(classes: Iterable[str]) -> dict[str, str]:
    """Returns the letters of every name that means a class or a kind of it, with that class."""
    found: dict[str, str] = {}
    for name in classes:
        for spelling in _related(name):
            found.setdefault(spelling, name)
    return found


def _read(url: str) -> list[str]:
    names = list(names_in(storage.read_lines(url)))
    try:
        check_classes(names)
    except ValueError as error:
        raise UserError(f"{url}: {error}.") from None
    return names


def _related(name: str) -> set[str]:
    """Returns the spellings of a thing, of its kinds, and of what it is a kind of.

    Most names of several words are a kind of the thing that the last one names: "tabby cat".
    """
    same = _spellings(name)
    wider = same | _spellings(words_of(name)[-1])
    related = set(wider)
    for thing, kinds in KINDS.items():
        if letters(thing) in same:
            related.update(*map(_spellings, kinds))
        if any(letters(kind) in wider for kind in kinds):
            related |= _spellings(thing)
    return related


@cache
def _spellings(name: str) -> frozenset[str]:
    """Returns a name and its synonyms, each in singular and plural, as letters."""
    forms = _forms(name)
    groups = [group for group in SYNONYMS if any(letters(word) in forms for word in group)]
    return forms.union(*(_forms(word) for group in groups for word in group))


def _forms(name: str) -> frozenset[str]:
    """Returns a name in singular and plural, as letters."""
    *first, last = words_of(name)
    return frozenset("".join([*first, form]) for form in {last} | plurals(last) | singulars(last))
