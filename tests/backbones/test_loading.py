"""Loading a model draws no random weights, and changes nothing else."""

from __future__ import annotations

import torch

from sparc_dist.backbones.loading import NoDraws
from sparc_dist.backbones.tiny.model import load_tiny_model, new_model


def test_nothing_is_drawn_and_constants_are_set() -> None:
    before = torch.get_rng_state()
    with NoDraws():
        layers = [torch.nn.Linear(3, 3), torch.nn.Embedding(3, 3), torch.nn.Conv2d(3, 3, 3)]
        norm = torch.nn.LayerNorm(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(isinstance(layer.weight, torch.nn.Parameter) for layer in layers)
    assert norm.weight.tolist() == [1, 1, 1]
    torch.nn.Linear(3, 3)
    assert not torch.equal(torch.get_rng_state(), before)


def test_a_loaded_model_has_its_weights_and_a_new_one_random_ones() -> None:
    first, second = load_tiny_model().state_dict(), load_tiny_model().state_dict()
    assert all(torch.equal(values, second[name]) for name, values in first.items())
    drawn = new_model().state_dict()
    name = "transformer.resblocks.0.mlp.c_fc.weight"
    assert not torch.equal(drawn[name], new_model().state_dict()[name])
