import re
from itertools import combinations

import numpy as np
import pytest

from sparc_dist.demo.objects import CLASSES, draw_object
from sparc_dist.demo.scenes import SPLITS, Scene, draw_scene, plural


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [draw_scene(seed) for seed in SPLITS["cooccurrence"][:600]]


@pytest.fixture(scope="module")
def present(scenes: list[Scene]) -> np.ndarray:
    """Labels [scenes, classes] of 0 and 1."""
    table = np.zeros((len(scenes), len(CLASSES)), dtype=int)
    for row, scene in enumerate(scenes):
        table[row, list(scene.labels)] = 1
    return table


def mentioned(text: str) -> set[str]:
    """Returns the classes that a caption names; longer names are removed first."""
    found = set()
    for name in sorted(CLASSES, key=len, reverse=True):
        pattern = rf"\b({name}|{plural(name)})\b"
        if re.search(pattern, text):
            found.add(name)
            text = re.sub(pattern, " ", text)
    return found


def test_same_seed_gives_the_same_scene() -> None:
    first, again, other = draw_scene(7), draw_scene(7), draw_scene(8)
    assert first.image.tobytes() == again.image.tobytes()
    assert (first.labels, first.captions) == (again.labels, again.captions)
    assert first.image.tobytes() != other.image.tobytes()


def test_splits_share_no_seed() -> None:
    assert set(SPLITS) == {"train", "cooccurrence", "validation", "test"}
    for one, two in combinations(SPLITS.values(), 2):
        assert one.stop <= two.start or two.stop <= one.start
    assert len(SPLITS["test"]) >= 4000
    assert len(SPLITS["cooccurrence"]) >= 4000


def test_classes_are_many_and_some_have_two_words() -> None:
    assert len(set(CLASSES)) == len(CLASSES) >= 20
    assert sum(" " in name for name in CLASSES) >= 2


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_looks_different(name: str) -> None:
    mine = np.asarray(draw_object(name, 48, np.random.default_rng(0))).astype(int)
    assert 0.05 < (mine[..., 3] > 0).mean() < 0.95
    for other in set(CLASSES) - {name}:
        theirs = np.asarray(draw_object(other, 48, np.random.default_rng(0)))
        assert (abs(mine - theirs).max(axis=2) > 30).mean() > 0.05


def test_every_class_occurs_and_none_everywhere(present: np.ndarray) -> None:
    share = present.mean(axis=0)
    assert share.min() > 0.02
    assert share.max() < 0.4


def test_scenes_hold_several_objects(present: np.ndarray) -> None:
    count = present.sum(axis=1)
    assert 2.5 < count.mean() < 6
    assert (count >= 2).mean() > 0.85


def test_themes_make_classes_occur_together(present: np.ndarray) -> None:
    together = present.T @ present
    lift = together / np.diag(together)[:, None] / present.mean(axis=0)
    np.fill_diagonal(lift, 0)
    # Every class makes some other class far more likely, and some less likely.
    assert (lift.max(axis=1) > 1.5).all()
    assert (lift.min(axis=1) < 0.8).all()


def test_classes_occur_outside_their_theme(present: np.ndarray) -> None:
    together = present.T @ present
    companions = (together > 0).sum(axis=1) - 1
    assert companions.min() > len(CLASSES) / 2


def test_captions_name_only_visible_classes(scenes: list[Scene]) -> None:
    for scene in scenes:
        names = {CLASSES[label] for label in scene.labels}
        for caption in scene.captions:
            assert mentioned(caption) <= names, caption


def test_captions_often_omit_classes(scenes: list[Scene]) -> None:
    shares = [
        len(mentioned(scene.captions[0])) / len(scene.labels) for scene in scenes if scene.labels
    ]
    assert 0.3 < np.mean(shares) < 0.8
    assert np.mean(np.array(shares) < 1) > 0.5


def test_captions_vary(scenes: list[Scene]) -> None:
    assert len({scene.captions[0] for scene in scenes}) > 0.8 * len(scenes)
    words = {word for scene in scenes for word in scene.captions[0].split()}
    assert {"and", "photo", "a", "the"} <= words


def test_pictures_vary_in_shape_light_and_are_rgb(scenes: list[Scene]) -> None:
    shapes = {scene.image.size for scene in scenes}
    assert any(width > height for width, height in shapes)
    assert any(width < height for width, height in shapes)
    assert {scene.image.mode for scene in scenes} == {"RGB"}
    brightness = [np.asarray(scene.image).mean() for scene in scenes[:200]]
    assert np.std(brightness) > 20
