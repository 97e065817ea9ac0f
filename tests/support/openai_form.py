"""Writes checkpoints in the form in which OpenAI publishes CLIP's weights.

``python -m tests.support.openai_form FOLDER [NAME …]`` writes those of the paper's backbones under
random weights and OpenAI's file names, for a config with ``weights_folder: FOLDER``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import open_clip
import torch

from sparc_dist.config import OPENAI


class Archive(torch.nn.Module):
    """The parts of a CLIP and the three numbers that OpenAI's archives hold beside them."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        for name, part in model.named_children():
            self.add_module(name, part)
        for name, values in model.named_parameters(recurse=False):
            self.register_parameter(name, values)
        visual: Any = model.visual
        side = visual.image_size
        numbers = {
            "input_resolution": side[0] if isinstance(side, tuple) else side,
            "context_length": model.context_length,
            "vocab_size": model.vocab_size,
        }
        for name, number in numbers.items():
            self.register_buffer(name, torch.tensor(number))

    def forward(self) -> int:
        return 0


def write_openai_form(model: torch.nn.Module, path: Path) -> Path:
    """A TorchScript archive in half precision, with three numbers beside the weights."""
    open_clip.convert_weights_to_fp16(model)
    jit: Any = torch.jit
    jit.script(Archive(model)).save(path)
    names = set(jit.load(path).state_dict())
    assert {"input_resolution", "visual.conv1.weight", "token_embedding.weight"} <= names
    return path


def write_random(folder: Path, name: str) -> Path:
    """One of the paper's backbones under random weights, always the same."""
    architecture, file = OPENAI[name]
    torch.manual_seed(0)
    model = open_clip.create_model(architecture, load_weights=False).eval()
    return write_openai_form(model, folder / file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one at a time: only the largest must fit into memory."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.openai_form")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(OPENAI)}")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(OPENAI)
    if unknown:
        parser.error(f"no such backbone: {', '.join(sorted(unknown))}")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or OPENAI:
        path = write_random(options.folder, name)
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
