"""Weights are downloaded to this node once, completely, and their hash is checked."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch

from sparc_dist import storage
from sparc_dist.backbones.checkpoints import create_model
from sparc_dist.backbones.models import Backbone
from sparc_dist.backbones.weights import cache_folder, find_checkpoint
from sparc_dist.config import OPENAI, BackboneConfig, load_config
from sparc_dist.errors import UserError
from sparc_dist.storage import StorageError, filesystems
from tests.support.s3 import FaultProxy, Faults
from tests.support.small_clip import SMALL, small_clip
from tests.support.web import Web, web_server

CONTENT = bytes(range(256)) * 4000
OTHER = CONTENT[::-1]
HASH = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets up a cache for this test, and no pauses between attempts."""
    monkeypatch.setattr(filesystems, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(filesystems, "OUTAGE", 0)
    monkeypatch.setenv("SPARC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as server:
        server.files["/RN50.pt"] = CONTENT
        yield server


def backbone(weights: str, sha256: str | None = None) -> BackboneConfig:
    return BackboneConfig(name="b", model="RN50-quickgelu", weights=weights, sha256=sha256)


def visible(folder: Path) -> list[str]:
    """Returns the names of checkpoints; locks are hidden."""
    return [path.name for path in folder.glob("*") if not path.name.startswith(".")]


def test_a_local_file_is_used_in_place(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "RN50.pt"
    path.write_bytes(CONTENT)
    assert find_checkpoint(backbone(str(path))) == str(path)
    assert find_checkpoint(backbone(f"file://{path}", HASH)) == str(path)
    assert not cache.exists()
    path.write_bytes(OTHER)
    found = hashlib.sha256(OTHER).hexdigest()
    with pytest.raises(UserError) as caught:
        find_checkpoint(backbone(str(path), HASH))
    assert str(caught.value) == (
        f"Backbone b: the weights {path} have the SHA-256 {found[:12]}… and not {HASH[:12]}…, so "
        "the file is damaged or a different one; put the right file there, or correct `sha256`."
    )


def test_the_error_about_a_missing_file_says_openais_name_for_it(
    tmp_path: Path, write_config: Callable[..., str]
) -> None:
    one = [{"name": "ViT-L-14-336", "model": "ViT-L-14-336-quickgelu", "weights": "openai"}]
    config = load_config(write_config(weights_folder="clip", backbones=one))
    with pytest.raises(UserError) as caught:
        find_checkpoint(config.backbones[0])
    place = tmp_path / "clip" / "ViT-L-14-336px.pt"
    assert str(caught.value) == (
        f"Backbone ViT-L-14-336: there is no weights file {place}; put the checkpoint of "
        "ViT-L-14-336-quickgelu (OpenAI publishes it as ViT-L-14-336px.pt) there, on every node, "
        "or correct the path."
    )
    place.mkdir(parents=True)
    with pytest.raises(UserError, match="there is no weights file"):
        find_checkpoint(config.backbones[0])


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder().name == "cache"
    monkeypatch.setenv("SPARC_CACHE", "")
    assert cache_folder() == Path("/home/me/.cache/sparc_dist")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert cache_folder() == Path("/var/cache/sparc_dist")
    monkeypatch.setenv("SPARC_CACHE", "~/weights")
    assert cache_folder() == Path("/home/me/weights")


def test_a_url_is_downloaded_once_and_again_when_its_content_changes(web: Web, cache: Path) -> None:
    config = backbone(f"{web.place}/RN50.pt")
    first = find_checkpoint(config)
    assert Path(first).read_bytes() == CONTENT
    assert Path(first).parent == cache
    assert first.endswith("-RN50.pt")
    assert find_checkpoint(config) == first
    assert web.asked["GET"] == 1
    web.files["/RN50.pt"] = OTHER
    second = find_checkpoint(config)
    assert Path(second).read_bytes() == OTHER
    assert web.asked["GET"] == 2


def test_a_copy_whose_hash_is_known_needs_no_server(cache: Path) -> None:
    with web_server() as web:
        web.files[f"/{HASH}/RN50.pt"] = CONTENT
        config = backbone(f"{web.place}/{HASH}/RN50.pt")
        path = find_checkpoint(config)
    assert find_checkpoint(config) == path
    assert visible(cache) == [Path(path).name]


@pytest.mark.parametrize("source", ["the URL", "`sha256`"])
def test_a_download_with_another_hash_is_an_error_and_deleted(
    web: Web, cache: Path, source: str
) -> None:
    web.files[f"/{HASH}/RN50.pt"] = web.files["/RN50.pt"] = OTHER
    config = backbone(f"{web.place}/{HASH}/RN50.pt")
    if source == "`sha256`":
        config = backbone(f"{web.place}/RN50.pt", HASH)
    found = hashlib.sha256(OTHER).hexdigest()
    with pytest.raises(UserError, match=f"{found[:12]}… and not {HASH[:12]}….*ect {source}"):
        find_checkpoint(config)
    assert visible(cache) == []
    assert not list(cache.glob(".*.part"))
    web.files[f"/{HASH}/RN50.pt"] = web.files["/RN50.pt"] = CONTENT
    assert Path(find_checkpoint(config)).read_bytes() == CONTENT


def test_a_truncated_download_is_retried_and_never_looks_complete(web: Web, cache: Path) -> None:
    config = backbone(f"{web.place}/RN50.pt")
    web.broken = 2
    assert Path(find_checkpoint(config)).read_bytes() == CONTENT
    assert web.asked["GET"] == 3
    web.files["/RN50.pt"], web.broken = OTHER, 100
    with pytest.raises(StorageError, match=r"in 5 attempts at reading http.*RN50.pt"):
        find_checkpoint(config)
    assert len(visible(cache)) == 1
    assert not list(cache.glob(".*.part"))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, r"there is no weights file http.*RN50.pt; put the checkpoint .*RN50.pt\) there, or"),
        (403, r"Reading http.* was refused \(403\); correct the URL"),
        (503, r"in 5 attempts at reading http.*RN50.pt"),
    ],
)
def test_a_failure_of_a_web_server_is_an_error(web: Web, status: int, message: str) -> None:
    web.status = status
    with pytest.raises(UserError, match=message):
        find_checkpoint(backbone(f"{web.place}/RN50.pt"))


def test_from_s3_through_faults(on_s3: FaultProxy, cache: Path) -> None:
    url = "s3://runs/weights/RN50.pt"
    storage.write_bytes(url, CONTENT)
    on_s3.behave(Faults(truncate=0.3, reset=0.1, error_500=0.1, seed=1))
    first = find_checkpoint(backbone(url))
    assert Path(first).read_bytes() == CONTENT
    assert sum(on_s3.injected.values()) > 0
    on_s3.behave()
    storage.write_bytes(url, OTHER + b"more")
    assert Path(find_checkpoint(backbone(url))).read_bytes() == OTHER + b"more"
    assert len(visible(cache)) == 2
    for missing in ("s3://runs/weights", "s3://runs/weights/none.pt"):
        with pytest.raises(UserError, match=f"there is no weights file {missing}; put the ch"):
            find_checkpoint(backbone(missing))


DOWNLOAD = """
import resource, sys
from sparc_dist.config import BackboneConfig
from sparc_dist.backbones.weights import find_checkpoint
config = BackboneConfig(name="b", model="RN50-quickgelu", weights=sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(find_checkpoint(config))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def find_in_thread(web: Web) -> tuple[threading.Thread, list[str]]:
    """Asks for a file that another process is downloading, and has to wait."""
    found: list[str] = []
    config = backbone(f"{web.place}/RN50.pt")
    thread = threading.Thread(target=lambda: found.append(find_checkpoint(config)))
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    return thread, found


def test_processes_wait_for_the_one_that_downloads_and_it_streams(web: Web) -> None:
    web.files["/RN50.pt"] = CONTENT * 80
    web.go_on.clear()
    command = [sys.executable, "-c", DOWNLOAD, f"{web.place}/RN50.pt"]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert web.half_way.wait(60)
    thread, found = find_in_thread(web)
    web.go_on.set()
    path, grown = other.communicate()[0].splitlines()
    thread.join()
    assert found == [path]
    assert web.asked["GET"] == 1
    assert os.path.getsize(path) == len(CONTENT) * 80
    assert int(grown) * 1024 < len(CONTENT) * 40


HOLD = """
import fcntl, sys, time
lock = open(sys.argv[1], "a")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


def test_a_process_killed_while_downloading_does_not_block_others(web: Web) -> None:
    copy = Path(find_checkpoint(backbone(f"{web.place}/RN50.pt")))
    copy.unlink()
    part_of(copy).write_bytes(OTHER * 2)  # more than the whole
    command = [sys.executable, "-c", HOLD, str(copy.with_name(f".{copy.name}.lock"))]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert other.stdout
    assert other.stdout.readline() == "held\n"
    thread, found = find_in_thread(web)
    other.kill()
    other.communicate()
    thread.join()
    assert found == [str(copy)]
    assert copy.read_bytes() == CONTENT
    assert not part_of(copy).exists()


def part_of(copy: Path) -> Path:
    """Returns the path of an incomplete download."""
    return copy.with_name(f".{copy.name}.{socket.gethostname()}.part")


def test_a_full_disk_is_reported_at_once(web: Web) -> None:
    config = backbone(f"{web.place}/RN50.pt")
    copy = Path(find_checkpoint(config))
    copy.unlink()
    part_of(copy).symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"no space left in .*cache for http.*set SPARC_CACHE"):
        find_checkpoint(config)
    assert web.asked["GET"] == 2


def test_a_cache_that_is_not_writable_is_an_error(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SPARC_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match=r"cache folder .* is not writable .*set SPARC_CACHE"):
        find_checkpoint(backbone(f"{web.place}/RN50.pt"))


def saved(model: str, folder: Path) -> tuple[torch.nn.Module, Path]:
    """Returns a model with random weights, and its checkpoint."""
    torch.manual_seed(0)
    made = open_clip.create_model(model, load_weights=False).eval()
    torch.save(made.state_dict(), folder / "weights.pt")
    return made, folder / "weights.pt"


def test_a_vit_at_a_forced_size_equals_open_clips(tmp_path: Path, web: Web) -> None:
    torch.save(small_clip().state_dict(), tmp_path / "small.pt")
    web.files["/small.pt"] = (tmp_path / "small.pt").read_bytes()
    config = BackboneConfig(name="s", model=SMALL, weights=f"{web.place}/small.pt", image_size=96)
    found = create_model(config)[0].eval()
    path = str(tmp_path / "small.pt")
    expected = open_clip.create_model(SMALL, pretrained=path, force_image_size=96)
    batch = torch.randn(2, 3, 96, 96)
    with torch.inference_mode():
        assert torch.equal(found.encode_image(batch), expected.eval().encode_image(batch))


@pytest.mark.parametrize(
    ("model", "tag", "size"),
    [("PE-Core-T-16-384", "meta", 384), ("MobileCLIP2-S0", "dfndr2b", 256)],
)
def test_a_file_is_normalised_like_the_tags_of_its_model(
    tmp_path: Path, model: str, tag: str, size: int
) -> None:
    made, path = saved(model, tmp_path)
    loaded = Backbone(BackboneConfig(name="m", model=model, weights=str(path)))
    config = open_clip.get_pretrained_cfg(model, tag)
    assert loaded.image_size == size
    pixels = np.random.default_rng(0).integers(0, 256, (1, size, size, 3), dtype=np.uint8)
    batch = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(config[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    tokens = open_clip.get_tokenizer(model)(["a cat"])
    with torch.inference_mode():
        image = made.encode_image((batch - mean) / std, normalize=True)  # type: ignore[operator]
        text = made.encode_text(tokens, normalize=True)  # type: ignore[operator]
    np.testing.assert_allclose(loaded.encode_images(pixels, 1), image, atol=1e-5)
    np.testing.assert_allclose(loaded.encode_texts(["a cat"]), text, atol=1e-5)


def test_openais_names_are_those_of_the_urls_that_open_clip_knows() -> None:
    for model, file in OPENAI.values():
        url = open_clip.get_pretrained_cfg(model, "openai")["url"]
        assert url.endswith(f"/{file}")
