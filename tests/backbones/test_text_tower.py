"""The text tower without padding, against the tower as open_clip runs it."""

from __future__ import annotations

from typing import Any

import open_clip
import torch

from sparc_dist.backbones.text_tower import BATCH, encode_tokens, ignores_padding

TEXTS = ["cat", "a photo of a traffic light", "cat and dog", *(f"number {i}" for i in range(40))]


def model_of(name: str) -> Any:
    torch.manual_seed(0)
    small = {"layers": 1, "width": 64, "heads": 2}
    model = open_clip.create_model(
        name, load_weights=False, vision_cfg={"layers": 1, "width": 64}, text_cfg=small
    )
    return model.eval()


def test_embeddings_are_those_of_the_whole_context() -> None:
    model = model_of("ViT-B-32-quickgelu")
    tokens = open_clip.get_tokenizer("ViT-B-32-quickgelu")(TEXTS)
    with torch.inference_mode():
        expected = model.encode_text(tokens, normalize=True)
    found = encode_tokens(model, tokens, torch.device("cpu"))
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


def test_a_tower_that_sees_padding_is_not_shortened() -> None:
    model = model_of("ViT-B-16-SigLIP")
    tokens = torch.randint(1, 1000, (3, model.context_length))
    assert not ignores_padding(model)
    with torch.inference_mode():
        expected = model.encode_text(tokens, normalize=True)
    found = encode_tokens(model, tokens, torch.device("cpu"))
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


def test_a_text_has_the_same_bits_in_any_company() -> None:
    model = model_of("ViT-B-32-quickgelu")
    tokens = open_clip.get_tokenizer("ViT-B-32-quickgelu")(TEXTS)
    cpu = torch.device("cpu")
    whole = encode_tokens(model, tokens, cpu)
    assert len(TEXTS) > BATCH
    for places in ([0], [2, 0, 1], list(range(5, 43, 3))):
        assert torch.equal(encode_tokens(model, tokens[places], cpu), whole[places])


def test_the_model_is_left_as_it_was() -> None:
    model = model_of("ViT-B-32-quickgelu")
    before = {name: values.clone() for name, values in model.state_dict().items()}
    encode_tokens(model, open_clip.get_tokenizer("ViT-B-32-quickgelu")(TEXTS), torch.device("cpu"))
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
