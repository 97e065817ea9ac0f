"""Slugs: names for files and URLs, made from names that anybody may have written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from hashlib import sha256
from itertools import product

#: The longest slug, without the number of one that is taken.
LONGEST = 40
#: Names of a report's own files and folders, and those that Windows does not allow.
RESERVED = {"index", "thumbnails", "figures", "tables", "report"}
RESERVED |= {"con", "prn", "aux", "nul", *(f"{p}{n}" for p in ("com", "lpt") for n in range(10))}


def slugs(names: Sequence[str]) -> list[str]:
    """Returns a slug for each name: lower-case letters, digits and hyphens; no two are equal.

    A slug depends only on the names up to its own. A name without any such letter becomes "x".
    """
    taken, found = set(RESERVED), []
    for name in names:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        slug = base = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST].rstrip("-") or "x"
        number = 1
        while slug in taken:
            number += 1
            slug = f"{base}-{number}"
        taken.add(slug)
        found.append(slug)
    return found


def unit_slugs(datasets: Sequence[str], backbones: Sequence[str]) -> dict[tuple[str, str], str]:
    """Returns the slug of each unit of a run."""
    keys = list(product(datasets, backbones))
    return dict(zip(keys, slugs(["-".join(key) for key in keys]), strict=True))


def image_key(shard: int, image_id: str) -> str:
    """Returns a name for an image: 24 hexadecimal digits.

    An image that changed is in another shard of a run, and has another key then.
    """
    name = f"{shard}/{image_id}".encode(errors="surrogatepass")
    return sha256(name).hexdigest()[:24]
