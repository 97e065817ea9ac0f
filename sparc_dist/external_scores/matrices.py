"""Score matrices that already exist: NPZ with JSON, or the pickles the authors publish.

What does not fit together is refused in a sentence, before anything is computed.
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

from sparc_dist import storage
from sparc_dist.config import check_classes, letters
from sparc_dist.core.debias import Scores
from sparc_dist.errors import UserError, one_line, quoted
from sparc_dist.external_scores.plain_pickle import load_plain
from sparc_dist.prompts import ClassMatcher, CompoundPrompt, PromptBank

#: Names in the authors' COCO files that differ from the classes' own.
ALIASES = {"motor bike": "motorcycle", "aeroplane": "airplane", "food bowl": "bowl"}
#: Final scores are written as float32.
LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True)
class Matrices:
    """Scores of M images with all that fusing them takes; labels (M, N) are optional."""

    ids: Sequence[str]
    scores: Scores
    bank: PromptBank
    labels: NDArray[np.bool_] | None


def read_npz(scores_url: str, prompts_url: str) -> Matrices:
    """Arrays singleton, auxiliary, compound, optional labels and image_ids; classes, prompts."""
    arrays = read_archive(scores_url)
    for name in ("singleton", "auxiliary", "compound"):
        if name not in arrays:
            raise UserError(f"{scores_url} has no array `{name}`; add it.")
    prompts = _json(prompts_url)
    for key in ("classes", "prompts"):
        if not isinstance(prompts.get(key), list) or not all(
            isinstance(text, str) for text in prompts[key]
        ):
            raise UserError(f"{prompts_url}: `{key}` must be a list of texts.")
    images = len(matrix(arrays["singleton"], "singleton", scores_url))
    ids = texts_of(arrays.get("image_ids", np.arange(images)), "image_ids", scores_url)
    if len(ids) != images:
        raise UserError(
            f"{scores_url}: there are {len(ids)} `image_ids` for {images} images; give one each."
        )
    return _checked(
        scores_url,
        ids,
        Scores(arrays["singleton"], arrays["auxiliary"], arrays["compound"]),
        bank_of(prompts["classes"], prompts["prompts"], prompts_url),
        arrays.get("labels"),
    )


def read_authors(folder: str, dataset: str, backbone: str) -> Matrices:
    """The authors' two pickles of a data set and backbone; class names as in their label file."""
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
        raise UserError(f"{both_url} lists other images than {singles_url}; take a matching pair.")
    if not np.array_equal(singles["gts"], both["gts"]):
        raise UserError(f"{both_url} has other labels than {singles_url}; take a matching pair.")
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
        bank_of(names, texts[width:], both_url, aliases),
        singles["gts"],
    )


def bank_of(
    classes: Sequence[str],
    prompts: Sequence[str],
    where: str,
    aliases: Mapping[str, str] | None = None,
) -> PromptBank:
    """A bank of given prompts; each must mention a class."""
    try:
        check_classes(classes)
    except ValueError as error:
        raise UserError(f"{where}: {error}.") from None
    matcher = ClassMatcher(classes, aliases)
    compound = []
    for index, text in enumerate(prompts):
        ids = matcher.classes_in(text)
        if not ids:
            raise UserError(
                f"{where}: prompt {index}, {quoted(text)}, mentions no class; correct or remove it."
            )
        compound.append(CompoundPrompt(text, ids, "descriptive"))
    return PromptBank(tuple(classes), tuple(compound))


def _checked(where: str, ids: list[str], scores: Scores, bank: PromptBank, labels: Any) -> Matrices:
    """The matrices, if they fit each other and hold numbers only."""
    images, classes = len(ids), len(bank.classes)
    expected = {
        "singleton": (scores.singleton, classes),
        "auxiliary": (scores.auxiliary, classes),
        "compound": (scores.compound, len(bank.compound)),
    }
    if labels is not None:
        expected["labels"] = (labels, classes)
    for name, (array, width) in expected.items():
        values = matrix(array, name, where)
        if values.shape != (images, width):
            raise UserError(
                f"{where}: `{name}` has the shape {values.shape}, but there are {images} images "
                f"and {width} {'compound prompts' if name == 'compound' else 'classes'}."
            )
        check_finite(values, name, where)
    _check_utf8([*ids, *bank.classes, *(prompt.text for prompt in bank.compound)], where)
    if not images:
        raise UserError(f"{where} holds no image; there is nothing to fuse.")
    if labels is not None and not np.isin(labels, (-1, 0, 1)).all():
        raise UserError(f"{where}: `labels` must be 1 for present and 0 or -1 for absent.")
    check_differ(ids, where)
    return Matrices(ids, scores, bank, None if labels is None else np.asarray(labels) > 0)


def _check_utf8(texts: Sequence[str], where: str) -> None:
    """No half of a character may be among them, as JSON and pickles can spell."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"{where}: {quoted(text)} is no text in Unicode; correct it.") from None


def texts_of(names: Any, field: str, where: str) -> list[str]:
    """Ids or class names, given as an array or a list of texts or whole numbers."""
    try:
        given = np.ravel(names).tolist() if isinstance(names, np.ndarray) else names
        if not isinstance(given, list) or not all(isinstance(n, str | bytes | int) for n in given):
            raise ValueError
        return [name.decode() if isinstance(name, bytes) else str(name) for name in given]
    except (ValueError, SystemError):  # of numbers that are no character
        raise UserError(f"{where}: `{field}` are no texts; write them anew.") from None


def matrix(array: Any, name: str, where: str) -> NDArray[Any]:
    """The array, if it is a matrix of numbers."""
    try:
        values = np.asarray(array)
    except (ValueError, OverflowError, RecursionError):  # lists within lists that are no rows
        values = np.empty(0)
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        raise UserError(f"{where}: `{name}` must be a matrix of numbers, images × prompts.")
    return values


def check_finite(values: NDArray[Any], name: str, where: str) -> None:
    """Every one of ``values`` (M, N) must be a number that a float32 can hold."""
    # Not isfinite, which makes a copy; and of NaN no comparison holds.
    if values.size and not (values.min() >= -LARGEST and values.max() <= LARGEST):
        row, column = np.argwhere(~((values >= -LARGEST) & (values <= LARGEST)))[0]
        raise UserError(
            f"{where}: `{name}` holds {values[row, column]} at row {row}, column {column}; "
            "every score must be a finite number that a float32 can hold."
        )


def check_differ(ids: Sequence[str], where: str) -> None:
    """No image id may stand twice."""
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise UserError(f"{where}: the image id {quoted(twice)} stands twice; make them differ.")


def _check_same_classes(classes: Any, auxiliary: Any, where: str) -> None:
    """The auxiliary prompts must be the classes, in the same order, in some known spelling."""
    ours, theirs = ([letters(ALIASES.get(n, n)) for n in names] for names in (classes, auxiliary))
    if ours != theirs:
        raise UserError(f"{where}: its first {len(classes)} prompts are not the class names.")


def _authors_pickle(url: str, keys: Sequence[str]) -> dict[str, Any]:
    value = read_pickle(url)
    if any(key not in value for key in keys):
        raise UserError(f"{url} must hold a dict with {', '.join(keys)}.")
    for key in set(keys) - {"cossims", "gts"}:
        if not isinstance(value[key], list) or not all(isinstance(v, str) for v in value[key]):
            raise UserError(f"{url}: `{key}` must be a list of texts.")
    return value


def read_pickle(url: str) -> dict[Any, Any]:
    """The dict in a pickle of plain arrays."""
    content = read_content(url)
    try:
        value = load_plain(content)
    except Exception as error:  # damaged pickles raise nearly anything
        raise UserError(
            f"{url} is not a pickle of plain arrays and was not read ({one_line(error, 200)}); "
            "write it from NumPy arrays, lists and texts only."
        ) from None
    if not isinstance(value, dict):
        raise UserError(f"{url} must hold a dict of arrays and lists; write one.")
    return value


def read_archive(url: str) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file by name."""
    content = read_content(url)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception:  # damaged archives raise nearly anything
        raise UserError(f"{url} is not an NPZ file of plain arrays; write it anew.") from None


def _json(url: str) -> dict[str, Any]:
    try:
        value = json.loads(read_content(url))
    except (ValueError, RecursionError):
        raise UserError(f"{url} is not valid JSON; correct it.") from None
    if not isinstance(value, dict):
        raise UserError(f"{url} must hold an object with `classes` and `prompts`.")
    return value


def read_content(url: str) -> bytes:
    """The bytes of a file that must be there."""
    try:
        return storage.read_bytes(url)
    except FileNotFoundError:
        raise UserError(f"There is no file {url}; check the path.") from None
    except IsADirectoryError:
        raise UserError(f"{url} is a folder; name a file.") from None
