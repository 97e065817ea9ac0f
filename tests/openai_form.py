"""Writes checkpoints in the form in which OpenAI publishes CLIP's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import open_clip
import torch


class Archive(torch.nn.Module):
    """The parts of a CLIP and the three numbers that OpenAI's archives hold beside them."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        for name, part in model.named_children():
            self.add_module(name, part)
        for name, values in model.named_parameters(recurse=False):
            self.register_parameter(name, values)
        for name, number in (("input_resolution", 224), ("context_length", 77)):
            self.register_buffer(name, torch.tensor(number))
        self.register_buffer("vocab_size", torch.tensor(49408))

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
