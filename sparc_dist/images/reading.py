"""A shard's images: bytes from storage, decoded to every size that a backbone needs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import MAX_IMAGE_BYTES
from sparc_dist.images.decoding import BadImage, squares
from sparc_dist.storage import (
    BadFile,
    BadUrl,
    NoBucket,
    StorageError,
    is_remote,
    is_web,
    without_secrets,
)

READERS = 8  # threads that read the files of a shard
#: If a larger share of a shard's images is absent, the store is asked again after PAUSE seconds.
ABSENT_SHARE, PAUSE = 0.1, 0.5


@dataclass(frozen=True)
class Pixels:
    """The decoded images of a shard.

    ids: image_id of the n images that could be read. squares: (n, S, S, 3) uint8 RGB for every
    size S. errors: image_id, uri, error and passing of the others.
    """

    ids: list[str]
    squares: dict[int, NDArray[np.uint8]]
    errors: list[dict[str, Any]]


def decode_shard(
    rows: Sequence[Mapping[str, str]],
    sizes: Sequence[int],
    jpeg_scaling: bool = True,
    most: int = MAX_IMAGE_BYTES,
) -> Pixels:
    """Reads and decodes ``rows`` of image_id and uri; unreadable images become errors.

    jpeg_scaling: whether large JPEGs are decoded at a smaller scale. most: bytes of a file.
    """
    pixels = {size: np.empty((len(rows), size, size, 3), dtype=np.uint8) for size in sizes}
    failed: dict[int, BadImage] = {}

    def decode(places: Sequence[int]) -> None:
        with closing(_read_ahead([rows[place]["uri"] for place in places], most)) as contents:
            for place, content in zip(places, contents, strict=True):
                try:
                    if isinstance(content, BadImage):
                        raise content
                    decoded = squares(content, sizes, jpeg_scaling=jpeg_scaling)
                    for size, square in zip(sizes, decoded, strict=True):
                        pixels[size][place] = square
                    failed.pop(place, None)
                except BadImage as error:
                    failed[place] = error

    decode(range(len(rows)))
    absent = [i for i, why in failed.items() if why.passing and not is_web(rows[i]["uri"])]
    if len(absent) > ABSENT_SHARE * len(rows):  # perhaps all of a folder that is away
        time.sleep(PAUSE)
        decode(absent)
    read = [place for place in range(len(rows)) if place not in failed]
    for found in pixels.values():
        for place, before in enumerate(read):
            if place != before:
                found[place] = found[before]
    squeezed = {size: found[: len(read)] for size, found in pixels.items()}
    errors = [
        {
            "image_id": rows[place]["image_id"],
            "uri": without_secrets(rows[place]["uri"]),
            "error": str(why),
            "passing": why.passing,
        }
        for place, why in failed.items()
    ]
    return Pixels([rows[place]["image_id"] for place in read], squeezed, errors)


def readable(
    rows: Sequence[Mapping[str, str]], decodes: bool, most: int = MAX_IMAGE_BYTES
) -> set[str]:
    """Returns the ids of those of ``rows`` that can be read now.

    decodes: whether they are decoded as well; otherwise only their bytes are read. most: of a file.
    """
    if decodes:
        return set(decode_shard(rows, [1], most=most).ids)
    with closing(_read_ahead([row["uri"] for row in rows], most)) as contents:
        pairs = zip(rows, contents, strict=True)
        return {row["image_id"] for row, content in pairs if isinstance(content, bytes)}


def _read_ahead(uris: Sequence[str], most: int) -> Generator[bytes | BadImage]:
    """Yields the bytes of each file in order; reads some files ahead, never all."""
    with ThreadPoolExecutor(READERS) as readers:
        ahead = deque(readers.submit(read_image, uri, most) for uri in uris[: 2 * READERS])
        for uri in [*uris[2 * READERS :], *[None] * len(ahead)]:
            content = ahead.popleft().result()
            if uri is not None:
                ahead.append(readers.submit(read_image, uri, most))
            yield content


def read_image(uri: str, most: int = MAX_IMAGE_BYTES) -> bytes | BadImage:
    """Returns a file's bytes, at most ``most``, or the reason for the error table.

    A store that does not answer is not the image's fault: the shard fails and is scored later. On
    the web, where any host may disappear, it is an error of the image. There, dead links are
    common, so a missing file is not expected to come back.
    """
    try:
        return storage.read_bytes(uri, most)
    except BadFile as error:
        return BadImage(error.reason)
    except FileNotFoundError:
        return BadImage("there is no such file", passing=not is_web(uri))
    except NoBucket:
        return BadImage("there is no such bucket", passing=True)
    except BadUrl as error:
        return BadImage(str(error))
    except PermissionError:
        also = ", or there is no such file" if is_remote(uri) else ""
        return BadImage(f"reading it was refused{also}", passing=True)
    except StorageError:
        if is_web(uri):
            return BadImage("its host does not answer", passing=True)
        raise
    except Exception as error:  # a manifest may contain any name, and an archive anything
        passing = isinstance(error, OSError)
        return BadImage(f"cannot be read: {type(error).__name__}", passing)
