"""Texts: their embeddings, stored in the run and per user, so that they are computed once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import TINY, BackboneConfig
from sparc_dist.errors import UserError, explain
from sparc_dist.prompts import PromptBank, TextEmbeddings, general_vocabulary

Float32 = NDArray[np.float32]

#: The variable with the folder, or URL, of the texts of this user; empty: they are not stored.
VARIABLE = "SPARC_CACHE"
#: The largest number of texts of a model that are stored per user.
MOST_TEXTS = 500_000


@dataclass(frozen=True)
class TextCache:
    """The texts of one model on one kind of device, in Parquet files (text, embedding).

    urls: the files; a text is looked for in all of them and added where it is missing.
    maker: what embeds them, such as the hash of the weights; files of other makers are not used.
    spare: further files, of this user; if they cannot be written, that costs time later only.
    """

    urls: Sequence[str]
    maker: str
    spare: Sequence[str] = ()

    def embed(self, texts: Sequence[str], compute: Callable[[Sequence[str]], Float32]) -> Float32:
        """Returns the embeddings (n, d) of texts; ``compute`` returns those of new ones."""
        places = [*self.urls, *self.spare]
        # What is refused is made again.
        stored = [_read_texts(url, lambda by: by == self.maker, OSError) for url in places]
        known = {text: row for part in stored for text, row in part.items()}
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known |= zip(new, compute(new), strict=True)
        for url, part in zip(places, stored, strict=True):
            missing = [text for text in dict.fromkeys(texts) if text not in part]
            spare = url in self.spare
            if missing and (len(part) + len(missing) <= MOST_TEXTS or not spare):
                with suppress(*((OSError, storage.StorageError) if spare else ())):
                    self._write(url, part | {text: known[text] for text in missing})
        return np.array([known[text] for text in texts], dtype=np.float32)

    def _write(self, url: str, rows: dict[str, Float32]) -> None:
        # Whole arrays: Python's own numbers would take eight times the memory.
        matrix = np.stack(list(rows.values()))
        embeddings = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])
        columns = {"text": pa.array(list(rows), pa.string()), "embedding": embeddings}
        table = pa.table(columns).replace_schema_metadata({"maker": self.maker})
        storage.write_table(url, table)


def stored_texts(url: str, weights_sha256: str, texts: Sequence[str]) -> Float32 | None:
    """Returns the embeddings (n, d) of texts by a model, whatever device embedded them.

    Returns None unless the file has all of them. Unlike in ``TextCache.embed``, a file that cannot
    be read is an error.
    """
    known = _read_texts(url, lambda made_by: made_by.startswith(f"{weights_sha256} "))
    if any(text not in known for text in texts):
        return None
    return np.array([known[text] for text in texts], dtype=np.float32)


def _read_texts(
    url: str, accept: Callable[[str], bool], *ignored: type[OSError]
) -> dict[str, Float32]:
    """Returns what a file holds; nothing if it is missing, damaged or its maker not accepted.

    ignored: errors of the store after which it holds nothing, too.
    """
    try:
        table = storage.read_table(url)
        if not accept((table.schema.metadata or {}).get(b"maker", b"").decode()):
            return {}
        flat = table["embedding"].combine_chunks().flatten().to_numpy()
        return dict(zip(table["text"].to_pylist(), flat.reshape(len(table), -1), strict=True))
    except (FileNotFoundError, ValueError, KeyError, pa.ArrowException, *ignored):
        return {}


def maker(weights_sha256: str, device: str) -> str:
    """Returns what identifies the embeddings of a model: devices round differently."""
    return f"{weights_sha256} {device}"


def texts_of(bank: PromptBank) -> list[str]:
    """Returns the texts of a bank: a singleton's templates and name, names, compound prompts."""
    # A name in a template's place cannot be confused with a text: no text has this character.
    singletons = [f"{bank.templates}\0{name}" for name in bank.columns]
    return [*singletons, *bank.columns, *(prompt.text for prompt in bank.compound)]


def in_kinds(rows: Float32, bank: PromptBank) -> TextEmbeddings:
    """Returns the embeddings (n, d) of ``texts_of(bank)``, by kind."""
    count = len(bank.columns)
    return TextEmbeddings(rows[:count], rows[count : 2 * count], rows[2 * count :])


def user_file(model: str, weights_sha256: str) -> list[str]:
    """Returns the file of this user's cache for a model; none if the cache is turned off."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(base, "sparc_dist")
    if not folder:
        return []
    name = f"{model.replace('/', '_')}-{weights_sha256[:16]}.parquet"
    return [storage.join(folder, "texts", name)]


def embed_names(backbones: Sequence[BackboneConfig], names: Sequence[str]) -> Float32:
    """Returns embeddings (n, d) of plain names by the first backbone that works.

    Raises UserError about the first if none does.
    """
    problems = []
    for config in backbones:
        try:
            return _embed(config, names)
        except Exception as error:  # one backbone's error must not fail the others
            problems.append(explain(error, config.place))
    raise UserError(problems[0])


def _embed(config: BackboneConfig, names: Sequence[str]) -> Float32:
    # Here and not above: the driver does not load torch.
    from sparc_dist.backbones.devices import pick_device
    from sparc_dist.backbones.models import Backbone

    # One CPU, though there may be a GPU: every cluster has a CPU to prepare with, names are few,
    # and the same names get the same pairs in one process and on Ray. The cache of texts is left
    # alone, because it has those of one kind of device, the scorers'.
    rows: Float32 = Backbone(config, pick_device(gpus=0, threads=1)).encode_texts(names).numpy()
    if not np.isfinite(rows).all():
        raise UserError(
            f"{config.place}: the model returns embeddings that are not numbers; its "
            "weights are damaged, download them again."
        )
    return rows


def vocabulary_for(backbones: Sequence[BackboneConfig]) -> tuple[str, ...]:
    """Returns the names of the bundled model if there is no other, else the general vocabulary."""
    if all(backbone.model == TINY for backbone in backbones):
        return tiny_classes()
    return general_vocabulary()


@cache
def tiny_classes() -> tuple[str, ...]:
    """Returns the classes that the bundled model was trained on; it knows no others."""
    # Without importing ``tiny``, which loads torch.
    content = files("sparc_dist.backbones").joinpath("tiny/classes.txt").read_text(encoding="utf-8")
    return tuple(content.split("\n")[:-1])
