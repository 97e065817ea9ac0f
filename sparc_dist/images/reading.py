"""A shard's images: bytes from storage, decoded once to every size that a backbone wants."""

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

READERS = 8  # threads that wait for the bytes of a shard's images


@dataclass(frozen=True)
class Pixels:
    """The decoded images of a shard.

    squares: (n, S, S, 3) uint8 RGB for every size S, of the n images that could be read; errors:
    image_id, uri and error of the others.
    """

    ids: list[str]
    squares: dict[int, NDArray[np.uint8]]
    errors: list[dict[str, str]]


def decode_shard(rows: Sequence[Mapping[str, str]], sizes: Sequence[int]) -> Pixels:
    """Read and decode ``rows`` of image_id and uri; what cannot be read becomes an error."""
    good: list[str] = []
    errors: list[dict[str, str]] = []
    pixels = {size: np.empty((len(rows), size, size, 3), dtype=np.uint8) for size in sizes}
    contents = _read_ahead([row["uri"] for row in rows])
    with closing(contents):
        for row, content in zip(rows, contents, strict=True):
            try:
                if isinstance(content, BadImage):
                    raise content
                for size, square in zip(sizes, squares(content, sizes), strict=True):
                    pixels[size][len(good)] = square
                good.append(row["image_id"])
            except BadImage as error:
                uri = without_secrets(row["uri"])
                errors.append({**row, "uri": uri, "error": str(error)})
    return Pixels(good, {size: rows[: len(good)] for size, rows in pixels.items()}, errors)


def _read_ahead(uris: Sequence[str]) -> Generator[bytes | BadImage]:
    """The bytes of each file, in order; some are read ahead, never all."""
    with ThreadPoolExecutor(READERS) as readers:
        ahead = deque(readers.submit(_read, uri) for uri in uris[: 2 * READERS])
        for uri in [*uris[2 * READERS :], *[None] * len(ahead)]:
            content = ahead.popleft().result()
            if uri is not None:
                ahead.append(readers.submit(_read, uri))
            yield content


def _read(uri: str) -> bytes | BadImage:
    """A file's bytes; what keeps us from them is said in the error table.

    A store that does not answer is not the image's fault: the shard fails, to be done again when
    it does. On the web, where any host may be gone for good, it is.
    """
    try:
        return storage.read_bytes(uri)
    except FileNotFoundError:
        return BadImage("there is no such file")
    except NoBucket:
        return BadImage("there is no such bucket")
    except BadUrl:
        return BadImage("its URL cannot name a file")
    except PermissionError:
        also = ", or there is no such file" if is_remote(uri) else ""
        return BadImage(f"reading it was refused{also}")
    except StorageError:
        if is_web(uri):
            return BadImage("its host does not answer")
        raise
    except (OSError, ValueError) as error:  # on any name that may stand in a manifest
        return BadImage(f"cannot be read: {type(error).__name__}")
