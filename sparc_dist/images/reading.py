"""A shard's images: bytes from storage, decoded to every size that a backbone needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.images.decoding import BadImage, squares
from sparc_dist.storage import BadUrl, NoBucket, StorageError, is_remote, is_web, without_secrets

READERS = 8  # threads that read the files of a shard


@dataclass(frozen=True)
class Pixels:
    """The decoded images of a shard.

    ids: image_id of the n images that could be read. squares: (n, S, S, 3) uint8 RGB for every
    size S. errors: image_id, uri and error of the others.
    """

    ids: list[str]
    squares: dict[int, NDArray[np.uint8]]
    errors: list[dict[str, str]]


def decode_shard(
    rows: Sequence[Mapping[str, str]], sizes: Sequence[int], jpeg_scaling: bool = True
) -> Pixels:
    """Reads and decodes ``rows`` of image_id and uri; unreadable images become errors.

    jpeg_scaling: whether large JPEGs are decoded at a smaller scale.
    """
    ids: list[str] = []
    errors: list[dict[str, str]] = []
    pixels = {size: np.empty((len(rows), size, size, 3), dtype=np.uint8) for size in sizes}
    contents = _read_ahead([row["uri"] for row in rows])
    with closing(contents):
        for row, content in zip(rows, contents, strict=True):
            try:
                if isinstance(content, BadImage):
                    raise content
                decoded = squares(content, sizes, jpeg_scaling=jpeg_scaling)
                for size, square in zip(sizes, decoded, strict=True):
                    pixels[size][len(ids)] = square
                ids.append(row["image_id"])
            except BadImage as error:
                uri = without_secrets(row["uri"])
                errors.append({**row, "uri": uri, "error": str(error)})
    return Pixels(ids, {size: rows[: len(ids)] for size, rows in pixels.items()}, errors)


def _read_ahead(uris: Sequence[str]) -> Generator[bytes | BadImage]:
    """Yields the bytes of each file in order; reads some files ahead, never all."""
    with ThreadPoolExecutor(READERS) as readers:
        ahead = deque(readers.submit(read_image, uri) for uri in uris[: 2 * READERS])
        for uri in [*uris[2 * READERS :], *[None] * len(ahead)]:
            content = ahead.popleft().result()
            if uri is not None:
                ahead.append(readers.submit(read_image, uri))
            yield content


def read_image(uri: str) -> bytes | BadImage:
    """Returns a file's bytes, or the reason for the error table if it cannot be read.

    A store that does not answer is not the image's fault: the shard fails and is scored later. On
    the web, where any host may disappear, it is an error of the image.
    """
    try:
        return storage.read_bytes(uri)
    except FileNotFoundError:
        return BadImage("there is no such file")
    except NoBucket:
        return BadImage("there is no such bucket")
    except BadUrl:
        return BadImage("its URL does not name a file")
    except PermissionError:
        also = ", or there is no such file" if is_remote(uri) else ""
        return BadImage(f"reading it was refused{also}")
    except StorageError:
        if is_web(uri):
            return BadImage("its host does not answer")
        raise
    except (OSError, ValueError) as error:  # a manifest may contain any name
        return BadImage(f"cannot be read: {type(error).__name__}")
