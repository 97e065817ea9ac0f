"""The tensors of TorchScript archives, the form in which OpenAI publishes its weights.

``torch.jit.load`` compiles the code of an archive and runs its ``__setstate__``. Here no code is
run: data.pkl is read with a stand-in for each of the few names that it may have, and tensors are
made at the end, from checked parts. They use the bytes of the file, which is mapped into memory.
"""

from __future__ import annotations

import math
import mmap
import pickle
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import torch

from sparc_dist.storage.reading import RestrictedUnpickler

#: The largest data.pkl that is read, in bytes; OpenAI's have less than a megabyte.
MOST_BYTES = 16 * 2**20
#: The most modules and tensors of an archive, and the longest name: modules may contain themselves.
MOST_PARTS, LONGEST_NAME = 20_000, 1000


def is_torchscript(path: str) -> bool:
    """Whether a file is a TorchScript archive."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def read_tensors(path: str) -> dict[str, torch.Tensor]:
    """Returns the tensors of an archive's modules by name, as ``state_dict`` names them.

    Raises UnpicklingError for an archive that needs more than tensors, or whose tensors reach
    beyond their bytes.
    """
    records = _stored_records(path)
    names = [name for name in records if name.endswith("/constants.pkl")]
    folder = names[0].rpartition("/")[0] if names else ""
    content = bytes(_record(records, f"{folder}/data.pkl")[: MOST_BYTES + 1])
    if len(content) > MOST_BYTES:
        raise pickle.UnpicklingError(f"its data.pkl has more than {MOST_BYTES:,} bytes")
    parts = _named_tensors(_Unpickler(content, _STAND_INS).load())
    return {name: part.real(records, folder) for name, part in parts.items()}


def _stored_records(path: str) -> dict[str, memoryview]:
    """Returns the bytes of each record by its name; torch compresses none but code."""
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    records = {}
    for info in infos:
        lengths = struct.unpack_from("<HH", whole, info.header_offset + 26)  # name and extra field
        start = info.header_offset + 30 + sum(lengths)
        record = whole[start : start + info.file_size]
        if info.compress_type == zipfile.ZIP_STORED and len(record) == info.file_size:
            records[info.filename] = record
    return records


def _record(records: Mapping[str, memoryview], name: str) -> memoryview:
    if name not in records:
        raise pickle.UnpicklingError(f"its record {name!r} is missing, compressed or cut off")
    return records[name]


def _named_tensors(root: Any) -> dict[str, _Tensor]:
    """Returns the tensors of a module and of those in it, by their names with dots."""
    found, parts = {}, [("", root)]
    for name, part in parts:  # which grows meanwhile
        if len(parts) > MOST_PARTS or len(name) > LONGEST_NAME:
            raise pickle.UnpicklingError("it has too many modules in each other")
        if isinstance(part, _Tensor):
            found[name] = part
        elif isinstance(part, _Module) and isinstance(part.state, dict):
            for key, value in part.state.items():
                if isinstance(value, _Tensor | _Module):
                    parts.append((f"{name}.{key}" if name else str(key), value))
    return found


class _Ignored:
    """The stand-in of hooks, lists and devices, which are no part of a state_dict."""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it changes a value that is no module")


class _Module:
    """The stand-in of every module: its attributes. Its class has code, which is never read."""

    state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Tensor(_Ignored):
    """The stand-in of a tensor: its parts.

    storage: the type of its numbers, and the name of their record.
    """

    def __init__(self, storage: Any, offset: Any, size: Any, stride: Any, *_: object) -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride

    def real(self, records: Mapping[str, memoryview], folder: str) -> torch.Tensor:
        """Returns the tensor, whose numbers are in the record."""
        dtype, key = self.storage
        values = _numbers(_record(records, f"{folder}/data/{key}"), dtype)
        pairs = list(zip(self.size, self.stride, strict=True))
        count = math.prod(self.size)
        last = self.offset + sum((length - 1) * step for length, step in pairs)
        if (
            any(type(n) is not int or n < 0 for n in (self.offset, *self.size, *self.stride))
            or count > len(values)  # as of one number that is repeated without end
            or (count and last >= len(values))
        ):
            raise pickle.UnpicklingError(f"a tensor reaches beyond its record {key!r}")
        return torch.as_strided(values, self.size, self.stride, self.offset)


def _numbers(record: memoryview, dtype: torch.dtype) -> torch.Tensor:
    """Returns the numbers (n,) in a record."""
    if not len(record):
        return torch.empty(0, dtype=dtype)
    content = torch.frombuffer(record, dtype=torch.uint8)
    if content.data_ptr() % dtype.itemsize:  # torch aligns records, other programs may not
        content = content.clone()
    return content.view(dtype)


_DTYPES = {
    "BFloat16": torch.bfloat16,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}
_IGNORED = ("intlist", "boollist", "doublelist", "tensorlist")
_STAND_INS: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): _Tensor,
    ("collections", "OrderedDict"): _Ignored,
    ("torch", "device"): _Ignored,
    ("torch.jit._pickle", "restore_type_tag"): _Ignored,
    **{("torch.jit._pickle", f"build_{kind}"): _Ignored for kind in _IGNORED},
    **{("torch", f"{kind}Storage"): dtype for kind, dtype in _DTYPES.items()},
}


class _Unpickler(RestrictedUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Returns a stand-in; raises UnpicklingError for a name that tensors do not need."""
        if module.split(".")[0] == "__torch__":
            return _Module
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> tuple[torch.dtype, str]:
        """Returns the type of a storage's numbers and the name of their record."""
        match pid:
            case ("storage", torch.dtype() as dtype, str() as key, _, _):
                return dtype, key
        raise pickle.UnpicklingError("it refers to a value that is no storage")
