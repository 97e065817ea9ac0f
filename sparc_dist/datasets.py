"""Data sets: from a manifest or a folder to images.parquet, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from sparc_dist import storage
from sparc_dist.config import DatasetConfig, PromptsConfig, check_classes
from sparc_dist.errors import UserError
from sparc_dist.prompts.bank import PromptBank, descriptive_prompts
from sparc_dist.prompts.compound import (
    CompoundPrompt,
    Cooccurrence,
    all_pairs,
    from_cooccurrence,
)

IMAGES = pa.schema(
    [
        ("image_id", pa.string()),
        ("uri", pa.string()),
        ("labels", pa.list_(pa.int32())),
    ]
)
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
BATCH_ROWS = 4096


def class_names(dataset: DatasetConfig) -> tuple[str, ...]:
    """The data set's class names, read from their file if they lie in one."""
    if not isinstance(dataset.classes, str):
        return dataset.classes
    names = tuple(name.strip() for name in _lines(dataset.classes) if name.strip())
    try:
        check_classes(names)
    except ValueError as error:
        raise UserError(f"{dataset.classes}: {error}.") from None
    return names


def prompt_bank(dataset: DatasetConfig) -> PromptBank:
    """The data set's prompts, as its config asks for them."""
    classes = class_names(dataset)
    compound = list(_compound_prompts(classes, dataset.prompts))
    if dataset.prompts.descriptive is not None:
        lines = [line.strip() for line in _lines(dataset.prompts.descriptive)]
        found = descriptive_prompts(classes, [line for line in lines if line])
        if not found:
            raise UserError(
                f"No line of {dataset.prompts.descriptive} mentions a class of "
                f"{dataset.name}; check the names, or remove `descriptive`."
            )
        compound += found
    # Of a text that comes twice the first stays: a pair knows its classes, a sentence guesses.
    distinct: dict[str, CompoundPrompt] = {}
    for prompt in compound:
        distinct.setdefault(prompt.text, prompt)
    return PromptBank(classes, tuple(distinct.values()))


def image_batches(dataset: DatasetConfig, classes: Sequence[str]) -> Iterator[pa.Table]:
    """The data set's images as tables of the schema IMAGES, in a fixed order."""
    if dataset.kind == "folder":
        return _folder(dataset.images)
    return _manifest(dataset.images, classes, with_uri=True)


def write_images(batches: Iterable[pa.Table], url: str, shard_size: int) -> dict[str, int]:
    """Write images.parquet with one row group a shard; gives its counts.

    Keeps eight bytes an image, to find an id that stands twice, and one shard of rows.
    """
    hashes: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    labelled = 0
    pending = IMAGES.empty_table()
    with storage.writing(url) as path:
        with pq.ParquetWriter(path, IMAGES, compression="zstd") as writer:
            for batch in batches:
                ids = batch["image_id"].to_pylist()
                hashes.append(np.fromiter(map(hash, ids), np.int64, len(ids)))
                labelled += len(batch) - batch["labels"].null_count
                pending = pa.concat_tables([pending, batch])
                while len(pending) >= shard_size:
                    writer.write_table(pending.slice(0, shard_size))
                    pending = pending.slice(shard_size)
            if len(pending):
                writer.write_table(pending)
        count = sum(map(len, hashes))
        if not count:
            raise UserError(f"There is no image for {url}; check `images` in the config.")
        if len(np.unique(np.concatenate(hashes))) < count:
            raise UserError("Some image_id stands twice in the manifest; make them differ.")
    return {"images": count, "labelled": labelled, "shards": -(-count // shard_size)}


def _compound_prompts(classes: Sequence[str], prompts: PromptsConfig) -> Sequence[CompoundPrompt]:
    if prompts.source == "none":
        return ()
    if prompts.labels is None:
        return all_pairs(classes)
    seen: Cooccurrence | None = None
    for batch in _manifest(prompts.labels, classes, with_uri=False):
        counts = Cooccurrence.of((row or () for row in batch["labels"].to_pylist()), len(classes))
        seen = counts if seen is None else seen + counts
    if seen is None:
        raise UserError(f"{prompts.labels} holds no row; give a table with labels.")
    thresholds = (prompts.tau2, prompts.tau3)
    return from_cooccurrence(classes, seen, thresholds, prompts.direction)


def _folder(url: str) -> Iterator[pa.Table]:
    """Every image below a folder; its id is its path within the folder."""
    if not storage.is_folder(url):
        raise UserError(f"There is no folder {url}; check `images` in the config.")
    start = len(url.rstrip("/")) + 1
    found = (file for file in storage.files_below(url) if file.lower().endswith(SUFFIXES))
    for uris in _chunks(found, BATCH_ROWS):
        yield _images([uri[start:] for uri in uris], uris, [None] * len(uris))


def _manifest(url: str, classes: Sequence[str], with_uri: bool) -> Iterator[pa.Table]:
    """A Parquet or CSV table: uri, optional image_id, optional labels (names or indices).

    A table that only tells of labels (``with_uri`` false) needs no uri.
    """
    base = storage.parent(url)
    row = 0
    for batch in _table_batches(url):
        names = batch.schema.names
        needed = "uri" if with_uri else "labels"
        if needed not in names:
            raise UserError(f"{url} has no column `{needed}`; add it.")
        uris = batch["uri"].to_pylist() if "uri" in names else [""] * len(batch)
        ids = batch["image_id"].to_pylist() if "image_id" in names else uris
        labels = batch["labels"].to_pylist() if "labels" in names else [None] * len(batch)
        for offset, (uri, image_id) in enumerate(zip(uris, ids, strict=True)):
            if with_uri and (not isinstance(uri, str) or not uri or image_id in (None, "")):
                raise UserError(
                    f"{url}, row {row + offset}: uri or image_id is missing or no text; fill it in."
                )
        index = _label_reader(url, classes)
        yield _images(
            [str(image_id) for image_id in ids],
            [storage.absolute(uri, base) for uri in uris],
            [index(value, row + offset) for offset, value in enumerate(labels)],
        )
        row += len(batch)


def _label_reader(url: str, classes: Sequence[str]) -> Callable[[Any, int], list[int] | None]:
    """How to turn a cell of labels into class indices: a list of names or indices, or "a;b"."""
    index_of = {name: index for index, name in enumerate(classes)}

    def read(value: Any, row: int) -> list[int] | None:
        if value is None:
            return None
        items = value
        if isinstance(value, str):
            items = [name for name in value.split(";") if name.strip()]
        if not isinstance(items, list):
            raise UserError(f"{url}, row {row}: labels must be a list, not {items!r}; make it one.")
        indices = []
        for item in items:
            index = index_of.get(item.strip()) if isinstance(item, str) else item
            if not isinstance(index, int) or not 0 <= index < len(classes):
                raise UserError(
                    f"{url}, row {row}: the label {item!r} is none of the {len(classes)} classes; "
                    "correct it or add the class."
                )
            indices.append(index)
        if len(set(indices)) < len(indices):
            raise UserError(
                f"{url}, row {row}: a label stands twice; list the names or indices of the "
                "classes in the image, each once."
            )
        return sorted(indices)

    return read


def _table_batches(url: str) -> Iterator[pa.Table]:
    """The record batches of a Parquet or CSV file, read as they are needed."""
    if not url.endswith((".parquet", ".csv")):
        raise UserError(f"{url} is neither .parquet nor .csv; give a table in one of the two.")
    try:
        with fsspec.open(url, "rb") as file:
            if url.endswith(".parquet"):
                table = pq.ParquetFile(file)
                columns = [name for name in table.schema_arrow.names if name in IMAGES.names]
                batches = table.iter_batches(BATCH_ROWS, columns=columns)
            else:
                # As text, whatever they look like: an id such as 007 is no number.
                names = pa.csv.open_csv(file).schema.names
                file.seek(0)
                options = pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(IMAGES.names, pa.string()),
                    strings_can_be_null=False,
                    include_columns=[name for name in names if name in IMAGES.names],
                )
                batches = pa.csv.open_csv(file, convert_options=options)
            for batch in batches:
                yield pa.Table.from_batches([batch])
    except FileNotFoundError:
        raise UserError(f"There is no table {url}; check the path.") from None
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{url} cannot be read as a table: {reason}.") from None


def _images(ids: list[str], uris: list[str], labels: list[list[int] | None]) -> pa.Table:
    columns = zip((ids, uris, labels), IMAGES, strict=True)
    return pa.table([pa.array(values, field.type) for values, field in columns], schema=IMAGES)


def _lines(url: str) -> list[str]:
    try:
        return storage.read_bytes(url).decode("utf-8-sig").splitlines()
    except FileNotFoundError:
        raise UserError(f"There is no file {url}; check the path.") from None
    except UnicodeDecodeError:
        raise UserError(f"{url} is not UTF-8 text; save it as such.") from None


def _chunks(items: Iterable[str], size: int) -> Iterator[list[str]]:
    chunk: list[str] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
