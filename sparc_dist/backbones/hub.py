"""The hub: the source of open_clip's tagged weights and of some tokenizers.

Without internet, its client retries for more than a minute and then fails with an unhelpful
message. So this module looks on this node first, then checks whether the hub answers at all.
open_clip takes seconds to import; what does not need it does not wait for it.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import socket
import threading
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import RemoteEntryNotFoundError, RevisionNotFoundError

from sparc_dist.config import OPENAI, BackboneConfig
from sparc_dist.config.backbone import SET_FOLDER, SET_WEIGHTS, WEIGHTS
from sparc_dist.errors import UserError, one_line
from sparc_dist.storage import without_secrets

#: Seconds after which a hub that accepts no connection counts as unreachable.
CONNECT_TIMEOUT = 2.0
TAGS_SHOWN = 6  # in a message


def find_tagged(config: BackboneConfig) -> str:
    """Returns the path of a tag's checkpoint in this node's hub cache; downloads it if needed."""
    tag = _tag(config)
    repository, files = _files(tag)
    for file in files:
        found = try_to_load_from_cache(repository, file, revision=config.revision)
        if isinstance(found, str):
            return found
    obstacle = _obstacle()
    for file in files if obstacle is None else ():
        try:
            return hf_hub_download(repository, file, revision=config.revision)
        except RevisionNotFoundError:
            raise UserError(
                f"{config.place}: {_page(repository)} has no revision {config.revision}; "
                f"name one of its commits or tags in {WEIGHTS}, or remove the revision."
            ) from None
        except Exception as error:  # errors of the client and of the libraries it uses
            obstacle = f"the hub did not return them ({_reason(error)})"
            if not isinstance(error, RemoteEntryNotFoundError):
                break  # another file name would not help
    raise _not_here(config, str(obstacle), f"{' or '.join(files)} of {_page(repository)}")


def revision_of(path: str) -> str | None:
    """Returns the commit of a file in this node's hub cache; None for a file elsewhere."""
    parts = Path(path).parts
    cache = Path(constants.HF_HUB_CACHE).parts
    # models--OWNER--NAME/snapshots/COMMIT/FILE
    return parts[len(cache) + 2] if parts[: len(cache)] == cache else None


def check_tagged(config: BackboneConfig) -> None:
    """Raises UserError if a tag's checkpoint is neither in this node's cache nor to be had."""
    obstacle = _obstacle()
    if obstacle is None:
        return
    if os.path.isdir(constants.HF_HUB_CACHE) and any(
        name.startswith("models--") for name in os.listdir(constants.HF_HUB_CACHE)
    ):
        find_tagged(config)  # may be among them: only open_clip knows the repository
        return
    raise _not_here(config, obstacle, "its checkpoint")


def _not_here(config: BackboneConfig, obstacle: str, files: str) -> UserError:
    """Returns the error about weights that are not on this node and cannot be downloaded."""
    openai = dict(OPENAI.values()).get(config.model)
    if config.tag == "openai" and openai:
        remedy = f"put OpenAI's {openai} {SET_FOLDER}"
    else:
        remedy = f"put {files} {SET_WEIGHTS}"
    return UserError(
        f"{config.place}: the weights {config.weights} of {config.model} are not on this "
        f"node, and {obstacle}; {remedy}."
    )


def create_tokenizer(config: BackboneConfig) -> Any:
    """Returns a model's tokenizer: open_clip contains CLIP's, the hub SigLIP's and others."""
    import open_clip

    model_config = open_clip.get_model_config(config.model) or {"text_cfg": {}}
    repository = model_config["text_cfg"].get("hf_tokenizer_name")
    if not repository:
        return open_clip.get_tokenizer(config.model)
    subject = f"{config.place}: the tokenizer {repository} of {config.model}"
    if importlib.util.find_spec("transformers") is None:
        raise UserError(
            f"{subject} needs the package transformers; install it on every node "
            "(pip install transformers)."
        )
    obstacle = _obstacle()
    try:
        local = {"local_files_only": True} if obstacle else {}
        return open_clip.get_tokenizer(config.model, **local)
    except Exception as error:  # errors of transformers and of the libraries it uses
        obstacle = obstacle or f"the hub did not return it ({_reason(error)})"
        raise UserError(
            f"{subject} is not on this node, and {obstacle}; run `sparc-dist backbones` on a "
            f"machine that can reach the hub, and copy its {constants.HF_HUB_CACHE} to every node."
        ) from None


def _tag(config: BackboneConfig) -> dict[str, Any]:
    """Returns open_clip's config of a tag."""
    import open_clip

    tag: dict[str, Any] = open_clip.get_pretrained_cfg(config.model, config.tag)
    if tag:
        return tag
    tags = open_clip.list_pretrained_tags_by_model(config.model)
    names = ", ".join(tags[:TAGS_SHOWN]) + (" and others" if len(tags) > TAGS_SHOWN else "")
    tag_hint = f"one of its tags ({names}) or " if tags else ""
    raise UserError(
        f"{config.place}: open_clip has no weights {config.weights} for {config.model}; "
        f"set {WEIGHTS} to {tag_hint}the path of a checkpoint file."
    )


def _files(tag: dict[str, Any]) -> tuple[str, list[str]]:
    """Returns a tag's repository on the hub and the possible names of its file, best first."""
    from open_clip.constants import HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME

    repository, _, name = tag["hf_hub"].rpartition("/")
    if not name:
        return repository, [HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME]
    return repository, [os.path.splitext(name)[0] + ".safetensors", name]


def _page(repository: str) -> str:
    return f"{without_secrets(constants.ENDPOINT)}/{repository}"


def _obstacle() -> str | None:
    """Returns why the hub cannot be reached, or None if it can."""
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE forbids access to the hub"
    hub = urlsplit(constants.ENDPOINT)
    host = hub.hostname or ""
    proxies = urllib.request.getproxies()
    if (hub.scheme in proxies or "all" in proxies) and not urllib.request.proxy_bypass(host):
        return None  # only a request shows whether the proxy reaches the hub
    if _answers(host, hub.port or (80 if hub.scheme == "http" else 443)):
        return None
    return f"{without_secrets(constants.ENDPOINT)} cannot be reached from it"


def _answers(host: str, port: int) -> bool:
    """Whether a server accepts a connection.

    Runs in a thread, because a name lookup has no time limit of its own, and a host may have many
    unreachable addresses.
    """
    answer: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT / 2).close()
        except OSError:
            answer.put(False)
        else:
            answer.put(True)

    threading.Thread(target=connect, daemon=True).start()
    try:
        return answer.get(timeout=CONNECT_TIMEOUT)
    except queue.Empty:
        return False


def _reason(error: Exception) -> str:
    """Returns the cause of a client's error on one line, with URLs stripped of signatures."""
    text = one_line(error.__cause__ or error)
    return re.sub(r"\w+://\S+", lambda url: without_secrets(url[0]), text)
