"""Tags are looked up on this node and on the hub; without internet this fails at once."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import open_clip
import pytest
from huggingface_hub import constants

from sparc_dist.backbones import hub
from sparc_dist.backbones.hub import create_tokenizer
from sparc_dist.backbones.weights import (
    check_checkpoint,
    describe_checkpoint,
    find_checkpoint,
)
from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError
from sparc_dist.runs.labeler_file import read_labeler
from tests.support.openai_form import write_openai_form
from tests.support.photo_runs import draw_photos, go
from tests.support.small_clip import SMALL, small_clip
from tests.support.web import Web, web_server

OPENAIS = BackboneConfig(name="b", model="RN50-quickgelu", weights="openai")
LAIONS = BackboneConfig(name="b", model="ViT-B-32", weights="laion2b_s34b_b79k")
COMMIT = "0123456789" * 4
SIGLIP = BackboneConfig(name="b", model="ViT-B-16-SigLIP", weights="webli")


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets up an empty cache, a hub that does not answer and no proxy."""
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
    """Yields a hub on loopback that serves files."""
    with web_server() as web:
        web.headers = {"X-Repo-Commit": COMMIT, "X-Error-Code": "EntryNotFound"}
        template = f"{web.place}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", web.place)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield web


def test_without_internet_the_error_says_at_once_which_file_to_put_where() -> None:
    start = time.monotonic()
    with pytest.raises(UserError) as caught:
        find_checkpoint(OPENAIS)
    assert "RN50-quickgelu are not on this node, and http://127.0.0.1:" in str(caught.value)
    assert str(caught.value).endswith(
        "cannot be reached from it; put OpenAI's RN50.pt on every node and set `weights_folder` "
        "to its folder."
    )
    assert "pw" not in str(caught.value)
    with pytest.raises(UserError) as caught:
        find_checkpoint(LAIONS)
    assert "put open_clip_model.safetensors or open_clip_pytorch_model.bin of" in str(caught.value)
    assert "/laion/CLIP-ViT-B-32-laion2B-s34B-b79K on every node and set `wei" in str(caught.value)
    assert "pw" not in str(caught.value)
    assert time.monotonic() - start < hub.CONNECT_TIMEOUT


def test_weights_are_looked_for_before_anything_is_loaded(tmp_path: Path, served: Web) -> None:
    check_checkpoint(OPENAIS)  # the hub answers: they are downloaded later
    served.shutdown()
    served.server_close()
    with pytest.raises(UserError, match=r"are not on this node, and http.* cannot be reached"):
        check_checkpoint(OPENAIS)
    (tmp_path / "hub" / "models--other").mkdir(parents=True)
    with pytest.raises(UserError, match=r"put open_clip_model.safetensors or open_clip_p"):
        check_checkpoint(LAIONS)


def test_a_hub_behind_a_firewall_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "CONNECT_TIMEOUT", 0.4)
    with socket.socket() as firewall, socket.socket() as first, socket.socket() as second:
        firewall.bind(("127.0.0.1", 0))
        firewall.listen(0)
        for client in (first, second):  # they fill its queue; later clients get no answer
            client.setblocking(False)
            client.connect_ex(firewall.getsockname())
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{firewall.getsockname()[1]}")
        with pytest.raises(UserError, match="cannot be reached from it"):
            find_checkpoint(OPENAIS)


def test_offline_by_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="and HF_HUB_OFFLINE forbids access to the hub; put OpenAI"):
        find_checkpoint(OPENAIS)


def test_with_a_proxy_the_hub_is_assumed_to_be_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub._obstacle() is not None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert hub._obstacle() is None
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert hub._obstacle() is not None


@pytest.mark.parametrize("file", ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"])
def test_a_tag_is_downloaded_once_and_then_found_in_the_cache(served: Web, file: str) -> None:
    served.files[f"/laion/CLIP-ViT-B-32-laion2B-s34B-b79K/resolve/main/{file}"] = b"weights"
    path = Path(find_checkpoint(LAIONS))
    assert path.read_bytes() == b"weights"
    assert path.name == file
    served.asked.clear()
    assert find_checkpoint(LAIONS) == str(path)
    assert not served.asked


@pytest.mark.parametrize("revision", [COMMIT, "v1.0"])
def test_a_pinned_revision_is_downloaded_and_no_other(served: Web, revision: str) -> None:
    place = "/laion/CLIP-ViT-B-32-laion2B-s34B-b79K/resolve"
    served.files[f"{place}/main/open_clip_model.safetensors"] = b"of today"
    served.files[f"{place}/{revision}/open_clip_model.safetensors"] = b"weights"
    pinned = LAIONS.model_copy(update={"weights": f"{LAIONS.weights}@{revision}"})
    path = find_checkpoint(pinned)
    assert Path(path).read_bytes() == b"weights"
    assert describe_checkpoint(path) == {
        "sha256": hashlib.sha256(b"weights").hexdigest(),
        "revision": COMMIT,
    }
    served.asked.clear()
    assert find_checkpoint(pinned) == path
    assert not served.asked


def test_a_revision_that_does_not_exist_is_an_error(served: Web) -> None:
    served.headers["X-Error-Code"] = "RevisionNotFound"
    pinned = LAIONS.model_copy(update={"weights": f"{LAIONS.weights}@v9"})
    with pytest.raises(UserError) as caught:
        find_checkpoint(pinned)
    assert str(caught.value) == (
        f"Backbone b: {served.place}/laion/CLIP-ViT-B-32-laion2B-s34B-b79K has no revision v9; "
        "name one of its commits or tags in `weights`, or remove the revision."
    )


def test_run_and_labeler_have_the_revision_and_the_hash_of_the_weights(
    served: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = {"made": {"hf_hub": "me/small/"}}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, SMALL, tags)
    content = write_openai_form(small_clip(), tmp_path / "small.pt").read_bytes()
    served.files["/me/small/resolve/v1.0/open_clip_pytorch_model.bin"] = content
    draw_photos(tmp_path)
    pinned = {"name": "small", "model": SMALL, "weights": "made@v1.0"}
    data = {"kind": "manifest", "classes": ["cat", "dog", "car"]}
    results = go(tmp_path, tmp_path / "run", data, backbones=[pinned])
    assert not results.failures
    expected = {"sha256": hashlib.sha256(content).hexdigest(), "revision": COMMIT}
    (unit,) = json.loads((tmp_path / "run" / "run.json").read_text())["units"]
    assert unit["checkpoint"] == expected
    labeler = read_labeler(str(tmp_path / "run" / "photos" / "small" / "labeler.safetensors"))
    assert labeler.model is not None
    assert labeler.model.checkpoint == expected
    assert labeler.model.backbone["weights"] == "made@v1.0"


@pytest.mark.usefixtures("served")
def test_a_refusal_of_the_hub_is_an_error() -> None:
    with pytest.raises(UserError, match=r"the hub did not return them \(.*404.*\); put OpenAI's"):
        find_checkpoint(OPENAIS)
    assert hub._reason(OSError("at\n'https://me:pw@a.org/x?sig=abc'")) == "at 'https://a.org/x"


def test_the_error_about_an_unknown_tag_lists_the_known_ones() -> None:
    unknown = LAIONS.model_copy(update={"weights": "laion5b"})
    with pytest.raises(UserError, match=r"no weights laion5b for ViT-B-32; set .*\(openai, "):
        find_checkpoint(unknown)
    none = unknown.model_copy(update={"model": "ViT-S-32-alt"})
    with pytest.raises(UserError, match=r"for ViT-S-32-alt; set `weights` to the path"):
        find_checkpoint(none)


def test_every_tag_of_open_clip_is_on_the_hub() -> None:
    for model, tag in open_clip.list_pretrained():
        assert "/" in open_clip.get_pretrained_cfg(model, tag)["hf_hub"], (model, tag)


def test_clips_tokenizer_needs_no_hub() -> None:
    assert create_tokenizer(OPENAIS)(["a cat"]).shape == (1, 77)


def test_an_unavailable_tokenizer_is_an_error() -> None:
    about = "Backbone b: the tokenizer timm/ViT-B-16-SigLIP of ViT-B-16-SigLIP"
    reason = "is not on this node, and http://127.0.0.1.* cannot be reached from it; run `sparc"
    if importlib.util.find_spec("transformers") is None:
        reason = "needs the package transformers; install it on every node"
    with pytest.raises(UserError, match=f"{about} {reason}"):
        create_tokenizer(SIGLIP)
