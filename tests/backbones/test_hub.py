"""Tags are looked for on this node and on the hub; without internet a sentence comes at once."""

from __future__ import annotations

import importlib.util
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import open_clip
import pytest
from huggingface_hub import constants

from sparc_dist.backbones import hub
from sparc_dist.backbones.checkpoints import _normalisation
from sparc_dist.backbones.hub import create_tokenizer
from sparc_dist.backbones.weights import find_checkpoint
from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError
from tests.support.web import Web, web_server

OPENAIS = BackboneConfig(name="b", model="RN50-quickgelu", weights="openai")
LAIONS = BackboneConfig(name="b", model="ViT-B-32", weights="laion2b_s34b_b79k")
SIGLIP = BackboneConfig(name="b", model="ViT-B-16-SigLIP", weights="webli")


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, a hub that nobody serves and no proxy."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", f"http://me:pw@127.0.0.1:{port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A hub on loopback, as far as its client asks for files."""
    with web_server() as web:
        web.headers = {"X-Repo-Commit": "0123456789" * 4, "X-Error-Code": "EntryNotFound"}
        template = f"{web.place}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", web.place)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield web


def test_without_internet_it_is_said_at_once_which_file_to_put_where() -> None:
    start = time.monotonic()
    with pytest.raises(UserError) as told:
        find_checkpoint(OPENAIS)
    assert "RN50-quickgelu are not on this node, and http://127.0.0.1:" in str(told.value)
    assert str(told.value).endswith(
        "cannot be reached from it; put OpenAI's RN50.pt on every node and name its folder under "
        "`weights_folder`."
    )
    assert "pw" not in str(told.value)
    with pytest.raises(UserError) as told:
        find_checkpoint(LAIONS)
    assert "put open_clip_model.safetensors or open_clip_pytorch_model.bin of" in str(told.value)
    assert "/laion/CLIP-ViT-B-32-laion2B-s34B-b79K on every node and name it" in str(told.value)
    assert "pw" not in str(told.value)
    assert time.monotonic() - start < hub.PATIENCE


def test_a_hub_behind_a_wall_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PATIENCE", 0.4)
    with socket.socket() as wall, socket.socket() as first, socket.socket() as second:
        wall.bind(("127.0.0.1", 0))
        wall.listen(0)
        for client in (first, second):  # they fill its queue; whoever comes now hears nothing
            client.setblocking(False)
            client.connect_ex(wall.getsockname())
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{wall.getsockname()[1]}")
        with pytest.raises(UserError, match="cannot be reached from it"):
            find_checkpoint(OPENAIS)


def test_offline_by_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="and HF_HUB_OFFLINE forbids to ask the hub; put OpenAI's"):
        find_checkpoint(OPENAIS)


def test_a_proxy_is_trusted_to_know_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub._obstacle() is not None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert hub._obstacle() is None
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert hub._obstacle() is not None


@pytest.mark.parametrize("file", ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"])
def test_a_tag_is_fetched_from_the_hub_and_then_found_without_it(served: Web, file: str) -> None:
    served.files[f"/laion/CLIP-ViT-B-32-laion2B-s34B-b79K/resolve/main/{file}"] = b"weights"
    path = Path(find_checkpoint(LAIONS))
    assert path.read_bytes() == b"weights"
    assert path.name == file
    served.asked.clear()
    assert find_checkpoint(LAIONS) == str(path)
    assert not served.asked


@pytest.mark.usefixtures("served")
def test_what_the_hub_refuses_is_a_sentence() -> None:
    with pytest.raises(UserError, match=r"the hub does not give them \(.*404.*\); put OpenAI's"):
        find_checkpoint(OPENAIS)
    assert hub._reason(OSError("at\n'https://me:pw@a.org/x?sig=abc'")) == "at 'https://a.org/x"


def test_an_unknown_tag_is_answered_with_those_that_are_known() -> None:
    unknown = LAIONS.model_copy(update={"weights": "laion5b"})
    with pytest.raises(UserError, match=r"no weights laion5b of ViT-B-32; name one .*\(openai, "):
        find_checkpoint(unknown)
    none = unknown.model_copy(update={"model": "ViT-S-32-alt"})
    with pytest.raises(UserError, match=r"of ViT-S-32-alt; name a file by its path"):
        find_checkpoint(none)


def test_every_tag_of_open_clip_is_on_the_hub() -> None:
    for model, tag in open_clip.list_pretrained():
        assert "/" in open_clip.get_pretrained_cfg(model, tag)["hf_hub"], (model, tag)


def test_clips_tokenizer_needs_no_hub() -> None:
    assert create_tokenizer(OPENAIS)(["a cat"]).shape == (1, 77)


def test_a_tokenizer_that_cannot_be_had_is_a_sentence() -> None:
    about = "Backbone b: the tokenizer timm/ViT-B-16-SigLIP of ViT-B-16-SigLIP"
    reason = "is not on this node, and http://127.0.0.1.* cannot be reached from it; run `sparc"
    if importlib.util.find_spec("transformers") is None:
        reason = "needs the package transformers; install it on every node"
    with pytest.raises(UserError, match=f"{about} {reason}"):
        create_tokenizer(SIGLIP)


def test_siglip_from_a_file_is_normalised_as_siglip() -> None:
    file = SIGLIP.model_copy(update={"weights": "/w/siglip.safetensors"})
    assert _normalisation(file) == {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    clip = OPENAIS.model_copy(update={"weights": "/w/RN50.pt"})
    assert _normalisation(clip)["mean"] == open_clip.OPENAI_DATASET_MEAN
