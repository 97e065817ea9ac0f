"""Existing score matrices: NPZ with JSON, or the pickles that the authors publish.

Files that do not fit together fail with an error before anything is computed.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist import core, storage
from sparc_dist.config import check_classes, letters
from sparc_dist.core import Scores
from sparc_dist.errors import UserError, one_line, quoted
from sparc_dist.external_scores.plain_pickle import load_plain
from sparc_dist.prompts import ClassMatcher, CompoundPrompt, PromptBank

#: Names in the authors' COCO files that differ from the class names.
ALIASES = {"motor bike": "motorcycle", "aeroplane": "airplane", "food bowl": "bowl"}


@dataclass(frozen=True)
class Matrices:
    """The scores of M images and what is needed to fuse them.

    ids: the M image ids. labels: (M, N), or None if unknown.
    """

    ids: Sequence[str]
    scores: Scores
    bank: PromptBank
    labels: NDArray[np.bool_] | None


def read_npz(scores_url: str, prompts_url: str) -> Matrices:
    """Reads an NPZ file of scores and a JSON file of prompts.

    The NPZ file has the arrays singleton, auxiliary, compound and optionally labels and image_ids;
    the JSON file has classes, prompts and optionally background, whose columns follow those of the
    classes in singleton and auxiliary.
    """
    arrays = read_archive(scores_url)
    for name in ("singleton", "auxiliary", "compound"):
        if name not in arrays:
            raise UserError(f"{scores_url} has no array `{name}`; add it.")
    prompts = _json(prompts_url)
    prompts.setdefault("background", [])
    for key in ("classes", "prompts", "background"):
        if not isinstance(prompts.get(key), list) or not all(
            isinstance(text, str) for text in prompts[key]
        ):
            raise UserError(f"{prompts_url}: `{key}` must be a list of texts.")
    images = len(matrix(arrays["singleton"], "singleton", scores_url))
    ids = texts_of(arrays.get("image_ids", np.arange(images)), "image_ids", scores_url)
    if len(ids) != images:
        raise UserError(
            f"{scores_url}: {len(ids)} `image_ids` for {images} images; use one per image."
        )
    return _checked(
        scores_url,
        ids,
        Scores(arrays["singleton"], arrays["auxiliary"], arrays["compound"]),
        bank_of(prompts["classes"], prompts["prompts"], prompts_url, prompts["background"]),
        arrays.get("labels"),
    )


def read_authors(folder: str, dataset: str, backbone: str) -> Matrices:
    """Reads the authors' two pickles of a data set and backbone."""
    stem = f"{dataset}_test"
    singles_url = storage.join(folder, f"{stem}_baseline_zsclip_cossims_{backbone}_ensemble_80.pkl")
    both_url = storage.join(folder, f"{stem}_simple_single_and_compound_cossims_{backbone}.pkl")
    singles = _authors_pickle(singles_url, ("cossims", "gts", "classnames", "impaths"))
    both = _authors_pickle(
        both_url, ("cossims", "gts", "simple_single_and_compound_prompts", "impaths")
    )
    texts = both["simple_single_and_compound_prompts"]
    classes = singles["classnames"]
    width = len(classes)
    if list(singles["impaths"]) != list(both["impaths"]):
        raise UserError(f"{both_url} lists other images than {singles_url}; use a matching pair.")
    if not np.array_equal(singles["gts"], both["gts"]):
        raise UserError(f"{both_url} has other labels than {singles_url}; use a matching pair.")
    _check_same_classes(classes, texts[:width], both_url)
    aliases = ALIASES if dataset.upper().startswith("COCO") else {}
    names = [aliases.get(name, name) for name in classes]
    cossims = matrix(both["cossims"], "cossims", both_url)
    return _checked(
        both_url,
        [str(path) for path in singles["impaths"]],
        Scores(
            matrix(singles["cossims"], "cossims", singles_url),
            cossims[:, :width],
            cossims[:, width:],
        ),
        bank_of(names, texts[width:], both_url, aliases=aliases),
        singles["gts"],
    )


def bank_of(
    classes: Sequence[str],
    prompts: Sequence[str],
    where: str,
    background: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
) -> PromptBank:
    """Returns the bank of given prompts; raises UserError if one mentions no class.

    A prompt may mention background classes alone: its scores exist, and cost nothing more.
    """
    columns = (*classes, *background)
    try:
        check_classes(columns if classes else classes)
    except ValueError as error:
        raise UserError(f"{where}: {error}.") from None
    matcher = ClassMatcher(columns, aliases)
    compound = []
    for index, text in enumerate(prompts):
        ids = matcher.classes_in(text)
        if not ids:
            raise UserError(
                f"{where}: prompt {index}, {quoted(text)}, mentions no class; correct or remove it."
            )
        compound.append(CompoundPrompt(text, ids, "descriptive"))
    return PromptBank(tuple(classes), tuple(compound), tuple(background))


def _checked(where: str, ids: list[str], scores: Scores, bank: PromptBank, labels: Any) -> Matrices:
    """Returns the matrices; raises UserError if shapes do not match or values are not finite."""
    images, columns = len(ids), len(bank.columns)
    kind = "classes and background classes" if bank.background else "classes"
    expected = {
        "singleton": (scores.singleton, columns, kind),
        "auxiliary": (scores.auxiliary, columns, kind),
        "compound": (scores.compound, len(bank.compound), "compound prompts"),
    }
    if labels is not None:
        expected["labels"] = (labels, len(bank.classes), "classes")
    for name, (array, width, counted) in expected.items():
        values = matrix(array, name, where)
        if values.shape != (images, width):
            raise UserError(
                f"{where}: `{name}` has the shape {values.shape}, but there are {images} images "
                f"and {width} {counted}."
            )
        check_finite(values, name, where)
    _check_utf8([*ids, *bank.columns, *(prompt.text for prompt in bank.compound)], where)
    if not images:
        raise UserError(f"{where} contains no images; there is nothing to fuse.")
    if labels is not None and not np.isin(labels, (-1, 0, 1)).all():
        raise UserError(f"{where}: `labels` must be 1 for present and 0 or -1 for absent.")
    check_unique(ids, where)
    return Matrices(ids, scores, bank, None if labels is None else np.asarray(labels) > 0)


def _check_utf8(texts: Sequence[str], where: str) -> None:
    """Raises UserError for half of a surrogate pair, which JSON and pickles can contain."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"{where}: {quoted(text)} is not valid Unicode; correct it.") from None


def texts_of(names: Any, field: str, where: str) -> list[str]:
    """Returns ids or class names, given as an array or a list of texts or integers."""
    try:
        items = np.ravel(names).tolist() if isinstance(names, np.ndarray) else names
        if not isinstance(items, list) or not all(isinstance(n, str | bytes | int) for n in items):
            raise ValueError
        return [name.decode() if isinstance(name, bytes) else str(name) for name in items]
    except (ValueError, SystemError):  # raised for code points that do not exist
        raise UserError(f"{where}: `{field}` must be texts or integers; correct it.") from None


def matrix(array: Any, name: str, where: str) -> NDArray[Any]:
    """Returns the array; raises UserError if it is not a matrix of numbers."""
    try:
        return core.matrix(array, name)
    except ValueError as error:
        raise UserError(f"{where}: {error}.") from None


def check_finite(values: NDArray[Any], name: str, where: str) -> None:
    """Raises UserError if ``values`` (M, N) are not all finite float32 numbers."""
    try:
        core.check_finite(values, name)
    except ValueError as error:
        raise UserError(f"{where}: {error}.") from None


def check_unique(ids: Sequence[str], where: str) -> None:
    """Raises UserError if an image id is duplicate."""
    if len(set(ids)) < len(ids):
        duplicate = Counter(ids).most_common(1)[0][0]
        raise UserError(f"{where}: duplicate image id {quoted(duplicate)}; make the ids unique.")


def _check_same_classes(classes: Any, auxiliary: Any, where: str) -> None:
    """Raises UserError if the auxiliary prompts are not the classes in the same order."""
    ours, theirs = ([letters(ALIASES.get(n, n)) for n in names] for names in (classes, auxiliary))
    if ours != theirs:
        raise UserError(f"{where}: its first {len(classes)} prompts are not the class names.")


def _authors_pickle(url: str, keys: Sequence[str]) -> dict[str, Any]:
    value = read_pickle(url)
    if any(key not in value for key in keys):
        raise UserError(f"{url} must contain a dict with {', '.join(keys)}.")
    for key in set(keys) - {"cossims", "gts"}:
        if not isinstance(value[key], list) or not all(isinstance(v, str) for v in value[key]):
            raise UserError(f"{url}: `{key}` must be a list of texts.")
    return value


def read_pickle(url: str) -> dict[Any, Any]:
    """Returns the dict in a pickle of plain arrays."""
    content = read_content(url)
    try:
        value = load_plain(content)
    except Exception as error:  # damaged pickles raise many types of errors
        raise UserError(
            f"{url} is not a pickle of plain arrays and was not read ({one_line(error, 200)}); "
            "write it from NumPy arrays, lists and texts only."
        ) from None
    if not isinstance(value, dict):
        raise UserError(f"{url} must contain a dict of arrays and lists; write one.")
    return value


def read_archive(url: str) -> dict[str, NDArray[Any]]:
    """Returns the arrays of an NPZ file by name."""
    content = read_content(url)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception:  # damaged archives raise many types of errors
        raise UserError(f"{url} is not an NPZ file of plain arrays; write it again.") from None


def _json(url: str) -> dict[str, Any]:
    try:
        value = json.loads(read_content(url))
    except (ValueError, RecursionError):
        raise UserError(f"{url} is not valid JSON; correct it.") from None
    if not isinstance(value, dict):
        raise UserError(f"{url} must contain an object with `classes` and `prompts`.")
    return value


def read_content(url: str) -> bytes:
    """Returns the bytes of a file; raises UserError if it does not exist."""
    try:
        return storage.read_bytes(url)
    except FileNotFoundError:
        raise UserError(f"There is no file {url}; check the path.") from None
    except IsADirectoryError:
        raise UserError(f"{url} is a folder; name a file.") from None
