"""Weights run no code, whatever their file has; tensors of TorchScript archives keep their bits."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sparc_dist.backbones import torchscript
from sparc_dist.backbones.models import Backbone
from sparc_dist.backbones.torchscript import is_torchscript, read_tensors
from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError
from tests.support.openai_form import Archive, write_openai_form
from tests.support.small_clip import SMALL, small_clip

jit: Any = torch.jit


class Writer(torch.nn.Module):
    """Writes a file as soon as ``torch.jit.load`` reads it; this is TorchScript, not Python."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path, self.kept = path, torch.zeros(1)

    def forward(self) -> int:
        return 0

    @jit.export  # type: ignore[untyped-decorator]
    def __getstate__(self) -> tuple[str, bool]:
        return self.path, self.training

    @jit.export  # type: ignore[untyped-decorator]
    def __setstate__(self, state: tuple[str, bool]) -> None:
        self.path = state[0]
        self.training = state[1]
        self.kept = torch.from_file(state[0], True, 4, dtype=torch.uint8).fill_(65)


class WritesAFile:
    """A value whose pickle writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"echo AAAA > {self.path}",)


@pytest.fixture(scope="module")
def small() -> Any:
    return small_clip()


@pytest.fixture(scope="module")
def openai_form(small: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_openai_form(small, tmp_path_factory.mktemp("openai") / "small.pt")


def load(path: Path) -> Backbone:
    return Backbone(BackboneConfig(name="b", model=SMALL, weights=str(path)))


def copied(archive: Path, path: Path, changes: dict[str, bytes], method: int = 0) -> Path:
    """Writes an archive's records with other content, and other alignment, to another file."""
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w", method) as new:
        for name in old.namelist():
            new.writestr(name, changes.get(name.partition("/")[2], old.read(name)))
    return path


def assert_same_bits(path: Path) -> None:
    found, expected = read_tensors(str(path)), jit.load(path).state_dict()
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert found[name].stride() == values.stride()
        assert torch.equal(found[name], values)


def test_tensors_in_openais_form_have_the_bits_of_torchscripts(
    small: Any, openai_form: Path, tmp_path: Path
) -> None:
    assert_same_bits(openai_form)
    assert_same_bits(copied(openai_form, tmp_path / "unaligned.pt", {}))
    # OpenAI's modules were traced.
    small.float()
    traced = jit.trace(small.visual, torch.zeros(1, 3, 64, 64), check_trace=False)
    traced.save(tmp_path / "traced.pt")
    assert_same_bits(tmp_path / "traced.pt")


class Mixed(torch.nn.Module):
    """Tensors of several types, orders and owners beside other attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.turned = torch.nn.Parameter(torch.randn(2, 3).bfloat16().t())
        self.first = self.second = torch.nn.Linear(2, 2)
        self.norms = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2))
        self.register_buffer("part", torch.arange(10)[3:7])
        self.register_buffer("none", torch.zeros(0, 3))
        self.numbers, self.texts, self.device = [1, 2], {"a": "b"}, torch.device("cpu")

    def forward(self) -> int:
        return self.numbers[0]


def test_other_attributes_are_ignored(tmp_path: Path) -> None:
    jit.script(Mixed()).save(tmp_path / "mixed.pt")
    assert_same_bits(tmp_path / "mixed.pt")


def test_code_in_a_torchscript_archive_is_not_run(
    small: Any, openai_form: Path, tmp_path: Path
) -> None:
    written = tmp_path / "written"
    model = Archive(small.half())
    model.extra = Writer(str(written))
    jit.script(model).save(tmp_path / "hostile.pt")
    jit.load(tmp_path / "hostile.pt")
    assert written.read_bytes() == b"AAAA"  # what would happen
    written.unlink()
    assert load(tmp_path / "hostile.pt").weights_sha256
    assert load(openai_form).weights_sha256
    assert not written.exists()


@pytest.mark.parametrize("record", ["data.pkl", "constants.pkl"])
def test_a_pickle_in_a_torchscript_archive_calls_nothing(
    openai_form: Path, tmp_path: Path, record: str
) -> None:
    written = tmp_path / "written"
    hostile = pickle.dumps(WritesAFile(written))
    pickle.loads(hostile)
    assert written.exists()  # what would happen
    written.unlink()
    path = copied(openai_form, tmp_path / "hostile.pt", {record: hostile})
    if record == "constants.pkl":  # is not read at all
        assert load(path).weights_sha256 == load(openai_form).weights_sha256
    else:
        with pytest.raises(UserError) as caught:
            load(path)
        assert str(caught.value) == (
            f"Backbone b: the weights {path} of {SMALL} cannot be loaded (it refers to "
            "'posix.system'); set `weights` to a checkpoint of that model."
        )
    assert not written.exists()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("suffix", ["pt", "bin"])
def test_a_checkpoint_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool, suffix: str
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    path, written = tmp_path / f"hostile.{suffix}", tmp_path / "written"
    torch.save({"a": WritesAFile(written)}, path, _use_new_zipfile_serialization=zipped)
    torch.load(path, weights_only=False)
    assert written.exists()  # what would happen
    written.unlink()
    with pytest.raises(UserError, match=r"Backbone b: the weights .*hostile.* cannot be loaded"):
        load(path)
    assert not written.exists()


def test_compressed_weights_are_refused(openai_form: Path, small: Any, tmp_path: Path) -> None:
    """A few bytes of a file would fill all memory."""
    torch.save(small.state_dict(), tmp_path / "plain.pt")
    for archive, reason in (
        (openai_form, "its record '.*' is missing, compressed or cut off"),
        (tmp_path / "plain.pt", "its records are compressed"),
    ):
        path = copied(archive, tmp_path / "bomb.pt", {}, zipfile.ZIP_DEFLATED)
        with pytest.raises(UserError, match=reason):
            load(path)


def piece(value: object) -> bytes:
    """Returns the part of a pickle that makes a plain value."""
    return pickle.dumps(value, 2)[2:-1]


def tensor(offset: object, size: object, stride: object, record: object = "0") -> bytes:
    """Returns the part of a pickle that makes a tensor of a record's float32 numbers."""
    storage = b"(" + piece("storage") + b"ctorch\nFloatStorage\n" + piece(record)
    parts = piece("cpu") + piece(4) + b"tQ" + piece(offset) + piece(size) + piece(stride)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + parts + b"\x89}tR"


def module(attribute: bytes) -> bytes:
    return b"\x80\x02c__torch__.a\nM\n)\x81}" + piece("w") + attribute + b"sb."


@pytest.fixture
def crafted(tmp_path: Path) -> Callable[[bytes], dict[str, torch.Tensor]]:
    """Reads an archive with any data.pkl, and one record of four float32 numbers."""

    def read(content: bytes) -> dict[str, torch.Tensor]:
        path = tmp_path / "crafted.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/data.pkl", content)
            archive.writestr("a/data/0", torch.arange(4.0).numpy().tobytes())
            archive.writestr("a/constants.pkl", b"")
        assert is_torchscript(str(path))
        return read_tensors(str(path))

    return read


def test_tensors_stay_in_their_record(
    crafted: Callable[[bytes], dict[str, torch.Tensor]],
) -> None:
    assert crafted(module(tensor(1, (3,), (1,))))["w"].tolist() == [1, 2, 3]
    assert crafted(module(tensor(0, (2, 2), (1, 2))))["w"].tolist() == [[0, 2], [1, 3]]
    for offset, size, stride in [
        (0, (5,), (1,)),
        (2, (3,), (1,)),
        (0, (2, 2), (1, 3)),
        (-1, (2,), (1,)),
        (3, (2,), (-1,)),
        (0, (2**40,), (0,)),
        (0, (-1, -4), (1, 1)),
        (2**62, (), ()),
        (0.5, (1,), (1,)),
        (True, (1,), (1,)),
    ]:
        with pytest.raises(pickle.UnpicklingError, match="reaches beyond its record '0'"):
            crafted(module(tensor(offset, size, stride)))
    for malformed in (tensor(0, (2,), (1, 1)), tensor("a", 1, None)):
        with pytest.raises((ValueError, TypeError)):
            crafted(module(malformed))
    with pytest.raises(pickle.UnpicklingError, match=r"record 'a/data/\.\./0' is missing"):
        crafted(module(tensor(0, (1,), (1,), "../0")))
    with pytest.raises(pickle.UnpicklingError, match="no storage"):
        crafted(module(tensor(0, (1,), (1,), 0)))


def test_a_pickle_can_neither_change_the_reader_nor_fill_memory(
    crafted: Callable[[bytes], dict[str, torch.Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = piece((None, {"state": 1, "real": 1})) + b"b"
    for named in (b"c__torch__\nM\n", b"ctorch._utils\n_rebuild_tensor_v2\n"):
        with pytest.raises(TypeError):
            crafted(module(named + change))
    with pytest.raises(pickle.UnpicklingError, match="no module"):
        crafted(module(tensor(0, (1,), (1,)) + change))
    with pytest.raises(AttributeError):
        crafted(module(b"ctorch\nFloatStorage\n" + change))
    with pytest.raises(pickle.UnpicklingError, match="remembers a value as number"):
        crafted(module(b"Nr\xff\xff\xff\x7f"))
    itself = (
        b"\x80\x02c__torch__.a\nM\n)\x81q\x03}(" + piece("a") + b"h\x03" + piece("b") + b"h\x03ub."
    )
    with pytest.raises(pickle.UnpicklingError, match="too many modules"):
        crafted(itself)
    monkeypatch.setattr(torchscript, "MOST_BYTES", 100)
    with pytest.raises(pickle.UnpicklingError, match="more than 100 bytes"):
        crafted(module(piece("a" * 100)))
