from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from sparc_dist.backbones.tiny import MODEL_NAME, load_tiny_model, new_model
from sparc_dist.demo import train
from sparc_dist.demo.scenes import SPLITS, draw_scene

SCENES, SIDE = 64, 64


@pytest.fixture(scope="module")
def corpus() -> train.Corpus:
    new_model()  # registers the config with open_clip
    return train.draw_corpus(SCENES, SIDE)


def test_corpus_pairs_training_scenes_with_their_captions(corpus: train.Corpus) -> None:
    assert corpus.images.shape == (SCENES, 3, SIDE, SIDE)
    assert corpus.images.dtype == torch.uint8
    row = 4  # an even seed is not JPEG-compressed
    scene = draw_scene(SPLITS["train"][row])
    square = scene.image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    assert np.array_equal(corpus.images[row].permute(1, 2, 0).numpy(), np.asarray(square))
    tokens = open_clip.get_tokenizer(MODEL_NAME)(list(scene.captions))
    restored = torch.cat([torch.zeros(1, dtype=torch.long), corpus.token_ids])[corpus.tokens[row]]
    assert torch.equal(restored, tokens)


def test_several_processes_draw_the_same(
    corpus: train.Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "SCENES_PER_WORKER", SCENES // 2)
    monkeypatch.setattr(train, "cores", lambda: 2)
    again = train.draw_corpus(SCENES, SIDE)
    assert torch.equal(again.images, corpus.images)
    assert torch.equal(again.tokens, corpus.tokens)


def test_unknown_words_replace_neither_start_nor_end(
    corpus: train.Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "UNKNOWN", 1.0)
    random = torch.Generator().manual_seed(0)
    _, texts = next(train.batches(corpus, 1, random))
    start, end = len(corpus.token_ids) - 1, len(corpus.token_ids)
    assert set(texts.flatten().tolist()) == {0, start, end}
    assert ((texts == end).sum(dim=1) == 1).all()


def test_training_lowers_the_loss(corpus: train.Corpus) -> None:
    _, losses = train.train(corpus, epochs=16, seed=1)
    assert len(losses) == 16
    assert np.mean(losses[-3:]) < losses[0] - 0.2


def test_same_seed_gives_the_same_file_and_another_seed_another(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.safetensors" for name in ("first", "again", "other")]
    for path, seed in zip(paths, ("0", "0", "1"), strict=True):
        options = ["--out", str(path), "--seed", seed, "--scenes", "32", "--epochs", "1"]
        train.main(options)
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again
    assert first != other
    model = load_tiny_model(paths[0])
    with torch.no_grad():
        embedded = model.encode_text(open_clip.get_tokenizer(MODEL_NAME)(["cat and sofa"]))
    assert torch.isfinite(embedded).all()
