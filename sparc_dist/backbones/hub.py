"""The hub: where open_clip's tags and some tokenizers come from.

Its client tries for more than a minute where there is no internet, and then says little that
helps. So we look first at what is on this node, then whether the hub answers at all.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import socket
import threading
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import open_clip
from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import RemoteEntryNotFoundError
from open_clip.constants import HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME

from sparc_dist.config import OPENAI, BackboneConfig
from sparc_dist.errors import UserError, one_line
from sparc_dist.storage import without_secrets

#: Seconds after which a hub that does not take a connection counts as out of reach.
PATIENCE = 5.0
SHOWN = 6  # tags that are listed


def find_tagged(config: BackboneConfig) -> str:
    """The checkpoint of an open_clip tag in the hub's cache on this node, fetched if need be."""
    tag = _tag(config)
    repository, files = _files(tag)
    for file in files:
        found = try_to_load_from_cache(repository, file)
        if isinstance(found, str):
            return found
    obstacle = _obstacle()
    for file in files if obstacle is None else ():
        try:
            return hf_hub_download(repository, file)
        except Exception as error:  # the client's own, and those of all that lies below it
            obstacle = f"the hub does not give them ({_reason(error)})"
            if not isinstance(error, RemoteEntryNotFoundError):
                break  # whatever it is, it is not that file's name
    openai = dict(OPENAI.values()).get(config.model)
    if (config.weights or "").lower() == "openai" and openai:
        remedy = f"put OpenAI's {openai} on every node and name its folder under `weights_folder`"
    else:
        page = f"{without_secrets(constants.ENDPOINT)}/{repository}"
        remedy = f"put {' or '.join(files)} of {page} on every node and name it under `weights`"
    raise UserError(
        f"Backbone {config.name}: the weights {config.weights} of {config.model} are not on this "
        f"node, and {obstacle}; {remedy}."
    )


def create_tokenizer(config: BackboneConfig) -> Any:
    """The tokenizer of a model: CLIP's comes with open_clip, SigLIP's and others' from the hub."""
    known = open_clip.get_model_config(config.model) or {"text_cfg": {}}
    repository = known["text_cfg"].get("hf_tokenizer_name")
    if not repository:
        return open_clip.get_tokenizer(config.model)
    about = f"Backbone {config.name}: the tokenizer {repository} of {config.model}"
    if importlib.util.find_spec("transformers") is None:
        raise UserError(
            f"{about} needs the package transformers; install it on every node "
            "(pip install transformers)."
        )
    obstacle = _obstacle()
    try:
        local = {"local_files_only": True} if obstacle else {}
        return open_clip.get_tokenizer(config.model, **local)
    except Exception as error:  # transformers' own, and those of all that lies below it
        obstacle = obstacle or f"the hub does not give it ({_reason(error)})"
        raise UserError(
            f"{about} is not on this node, and {obstacle}; run `sparc-dist backbones` where the "
            f"hub answers, and copy {constants.HF_HUB_CACHE} from there to every node."
        ) from None


def _tag(config: BackboneConfig) -> dict[str, Any]:
    """What open_clip knows of a tag."""
    tag: dict[str, Any] = open_clip.get_pretrained_cfg(config.model, config.weights)
    if tag:
        return tag
    tags = open_clip.list_pretrained_tags_by_model(config.model)
    known = ", ".join(tags[:SHOWN]) + (" and others" if len(tags) > SHOWN else "")
    remedy = f"name one of its own ({known}), or a checkpoint file" if tags else "name a file"
    raise UserError(
        f"Backbone {config.name}: open_clip knows no weights {config.weights} of {config.model}; "
        f"{remedy} by its path under `weights`."
    )


def _files(tag: dict[str, Any]) -> tuple[str, list[str]]:
    """A tag's repository on the hub, and its file's possible names, best first."""
    repository, _, name = tag["hf_hub"].rpartition("/")
    if not name:
        return repository, [HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME]
    return repository, [os.path.splitext(name)[0] + ".safetensors", name]


def _obstacle() -> str | None:
    """Why the hub cannot be asked; None when it can."""
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE forbids to ask the hub"
    hub = urlsplit(constants.ENDPOINT)
    host = hub.hostname or ""
    proxies = urllib.request.getproxies()
    if (hub.scheme in proxies or "all" in proxies) and not urllib.request.proxy_bypass(host):
        return None  # a proxy knows the way, or does not: only asking tells
    if _answers(host, hub.port or (80 if hub.scheme == "http" else 443)):
        return None
    return f"{without_secrets(constants.ENDPOINT)} cannot be reached from it"


def _answers(host: str, port: int) -> bool:
    """Whether a server takes a connection.

    In a thread, because looking up a name has no time limit of its own, and a host may have many
    addresses behind the same wall.
    """
    answer: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=PATIENCE / 2).close()
        except OSError:
            answer.put(False)
        else:
            answer.put(True)

    threading.Thread(target=connect, daemon=True).start()
    try:
        return answer.get(timeout=PATIENCE)
    except queue.Empty:
        return False


def _reason(error: Exception) -> str:
    """What lies behind an error of the client, on one line; the URLs of its stores are signed."""
    words = one_line(error.__cause__ or error)
    return re.sub(r"\w+://\S+", lambda url: without_secrets(url[0]), words)
