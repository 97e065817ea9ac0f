"""The choice of images: the galleries of all units, cut so that a report stays small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from sparc_dist.core import Gallery
from sparc_dist.report.exhibit import ROWS
from sparc_dist.runs import UnitKey

#: The images of all units of a report together, without one for each class; an image that two units
#: show counts twice.
MOST_IMAGES, FEWEST_IMAGES = 4000, 1000

#: The shard and the row of an image.
Place = tuple[int, int]


@dataclass(frozen=True)
class Choice:
    """The images that the pages of a unit show.

    known: for each of ROWS and each class the images of the gallery. rows: the first ones of them.
    """

    known: Mapping[str, Sequence[Sequence[Place]]]
    rows: Mapping[str, Sequence[list[Place]]]

    @classmethod
    def of(cls, gallery: Gallery) -> Choice:
        """Returns the choice of no image."""
        classes = range(gallery.keys.shape[1])
        known = {name: [gallery.images(name, index) for index in classes] for name in ROWS}
        return cls(known, {name: [[] for _ in classes] for name in ROWS})

    @property
    def width(self) -> int:
        """The number of classes."""
        return len(self.rows[ROWS[0]])

    def classes(self) -> dict[Place, set[int]]:
        """Returns for each chosen image the classes that it is shown for."""
        found: dict[Place, set[int]] = {}
        for rows in self.rows.values():
            for index, row in enumerate(rows):
                for place in row:
                    found.setdefault(place, set()).add(index)
        return found

    def emptied(self, index: int) -> frozenset[str]:
        """Returns the rows of a class that have images, of which none is chosen."""
        names = (name for name in ROWS if self.known[name][index] and not self.rows[name][index])
        return frozenset(names)


def choose(galleries: Mapping[UnitKey, Gallery]) -> dict[UnitKey, Choice]:
    """Returns which images each unit shows: all of its gallery, unless there are too many.

    The first image of each row is chosen for all classes of all units, then the second ones, until
    there are too many. From then on, a row goes on only with images that are shown anyway.
    """
    chosen = {key: Choice.of(gallery) for key, gallery in galleries.items()}
    # The page of a class is about as large as an image with its scores.
    classes = sum(choice.width for choice in chosen.values())
    most = max(MOST_IMAGES - classes, FEWEST_IMAGES)
    seen: set[tuple[UnitKey, Place]] = set()
    ranks = max((gallery.keys.shape[-1] for gallery in galleries.values()), default=0)
    for rank, name, (key, choice) in product(range(ranks), ROWS, chosen.items()):
        for images, row in zip(choice.known[name], choice.rows[name], strict=True):
            if len(row) == rank < len(images):
                image = (key, images[rank])
                if image in seen or len(seen) < most:
                    seen.add(image)
                    row.append(images[rank])
    return chosen
