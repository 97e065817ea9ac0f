"""Simulated labels and scores: the paper's noise model turned round, at any size, without images.

Labels come from a matrix of joint probabilities by the dichotomised Gaussian: class i is present
where the i-th of N correlated normal variables is below a threshold. Scores follow

    s = θ₁(t) · f(ỹ) + θ₀(t) + bias of the prompt + ε,    f = max(u) + δ · (mean of the other u),

with u_i = a₀ⁱ + a₁ⁱ ỹ_i for the classes of the prompt: for a pair the OR with AND-bonus, for one
class u itself. ỹ is what can be seen of the labels; all prompts see the same ỹ of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from sparc_dist.core.debias import Scores
from sparc_dist.core.moments import Floats

Labels = NDArray[np.bool_]

#: The streams of random numbers: of one seed, no two draws share one.
CLASSES, PROMPTS, SHARDS, LABELS, TRAINING, MORE_PROMPTS, MORE = range(7)

LARGEST = 10  # of a rate that is no share: far above any cosine

MOST_FREQUENT, LEAST_FREQUENT = 0.5, 0.002  # of COCO's classes: person, hair drier
LABELS_PER_IMAGE = 2.9  # as COCO has
CLASSES_PER_CONTEXT = 8
IN_CONTEXT = 0.5  # no class is much likelier than this where it is at home
ANYWHERE = 0.1  # the share of a class's images that know no context
RARE_COINCIDENCE = 0.1  # of what chance would give


@dataclass(frozen=True)
class Noise:
    """All rates of the noise model; where there is an SD, the value beside it is the mean.

    miss, ghost: how often a present class is not seen, and an absent one is. The paper flips labels
    at one rate; with 77 of 80 classes absent, that would show more ghosts than objects.
    offset: θ₀ of an image. gain_sd: of θ₁, whose mean is 1. base, lift: a₀ and a₁ of a class.
    bonus: δ of a compound prompt. prompt_sd: of the bias of a prompt.
    singleton, auxiliary, compound: SD of ε of a score of that kind.

    The defaults give, at COCO's size, about the paper's mAPs and their order. Raw scores suffer
    from θ₀, which debias removes. Prompts such as "A and B" see the same flips as the singleton of
    A, but each has an ε of its own, which their mean averages out; and where B is seen, A is
    likelier. Each of the two makes about half of what SPARC gains. The highest of them is a poor
    judge of A, for any one companion lifts it; to lift the second and third highest without A takes
    more companions at once, while A lifts them all.
    """

    miss: float = 0.16
    ghost: float = 0.002
    offset: float = 0.12
    offset_sd: float = 0.013
    gain_sd: float = 0.1
    base: float = 0.05
    base_sd: float = 0.01
    lift: float = 0.06
    lift_sd: float = 0.01
    bonus: float = 0.5
    bonus_sd: float = 0.08
    prompt_sd: float = 0.01
    singleton: float = 0.011
    auxiliary: float = 0.02
    compound: float = 0.03

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value, most = getattr(self, name), 1 if name in ("miss", "ghost") else LARGEST
            if not 0 <= value <= most:
                raise ValueError(f"{name} is {value}; it must be from 0 to {most}")


def stream(seed: int, kind: int, *numbers: int) -> np.random.Generator:
    """Random numbers of their own for, say, a shard's number: whoever draws, they are the same."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(kind, *numbers)))


def built_in_cooccurrence(classes: int) -> Floats:
    """Joint probabilities (N, N) like COCO's, with kitchens and streets in it.

    An image is of one of some contexts, all equally likely; given that, classes are independent.
    A class is at home in one context, every fourth in two, a frequent one in as many as it needs.
    """
    frequency = _frequencies(classes)
    contexts = -(-classes // CLASSES_PER_CONTEXT)
    given = np.tile(ANYWHERE * frequency, (contexts, 1))
    rng = np.random.default_rng(classes)
    for index, share in enumerate((1 - ANYWHERE) * frequency):
        needed = int(np.ceil(share * contexts / IN_CONTEXT))
        homes = rng.permutation(contexts)[: max(needed, 1 + (index % 4 == 0))]
        given[homes, index] += share * contexts / len(homes)
    joint = given.T @ given / contexts
    np.fill_diagonal(joint, given.mean(axis=0))
    return joint


def _frequencies(classes: int) -> Floats:
    """Class frequencies (N,): one class as frequent as persons are, the others falling evenly.

    The second is so frequent that the sum is the labels of an image; few classes make fewer.
    """
    wanted = min(LABELS_PER_IMAGE, classes / 10) - MOST_FREQUENT
    fall = np.linspace(0, 1, classes - 1)
    low, high = LEAST_FREQUENT, MOST_FREQUENT
    for _ in range(50):
        second = (low + high) / 2
        others = second * (LEAST_FREQUENT / second) ** fall
        low, high = (second, high) if others.sum() < wanted else (low, second)
    return np.concatenate([[MOST_FREQUENT], others])


@dataclass(frozen=True)
class LabelModel:
    """A dichotomised Gaussian. thresholds: (N,), factor: (N, N), of the latent correlations."""

    thresholds: Floats
    factor: Floats

    @classmethod
    def of(cls, joint: Floats) -> LabelModel:
        """From joint probabilities (N, N), with those of the single classes on the diagonal."""
        thresholds = ndtri(np.diag(joint))
        return cls(thresholds, _factor(latent_correlations(joint)))

    def draw(self, images: int, rng: np.random.Generator) -> Labels:
        """Labels (n, N) of so many images."""
        latent = rng.standard_normal((images, len(self.thresholds))) @ self.factor.T
        present: Labels = latent < self.thresholds
        return present


def latent_correlations(joint: Floats) -> Floats:
    """The correlations (N, N) at which two normal variables are below their thresholds together.

    A class that is never or always there goes with no other.
    """
    frequency = np.diag(joint)
    varies = (frequency > 0) & (frequency < 1)
    rows, columns = np.triu_indices(len(joint), 1)
    pairs = varies[rows] & varies[columns]
    rows, columns = rows[pairs], columns[pairs]
    p, q = frequency[rows], frequency[columns]
    # Pairs that were never seen together could have any correlation down to −1, which would leave
    # no room for what they have in common with others: they get a rare coincidence.
    wanted = np.maximum(joint[rows, columns], RARE_COINCIDENCE * p * q)
    found = np.zeros_like(joint)
    found[rows, columns] = np.sin(_angles(ndtri(p), ndtri(q), wanted))
    return found + found.T + np.eye(len(joint))


def _angles(h: Floats, k: Floats, wanted: Floats) -> Floats:
    """By bisection: the arcsines of the correlations at which P(X < h, Y < k) is as wanted."""
    low, high = np.full_like(h, -np.pi / 2), np.full_like(h, np.pi / 2)
    for _ in range(40):
        middle = (low + high) / 2
        too_small = both_below(h, k, middle) < wanted
        low, high = np.where(too_small, middle, low), np.where(too_small, high, middle)
    return (low + high) / 2


def both_below(h: Floats, k: Floats, angle: Floats) -> Floats:
    """P(X < h, Y < k) of standard normal variables with the correlation sin(angle), each (n,).

    Plackett: its derivative by the correlation is the density at (h, k); over the angle that is
    smooth, and Gauss and Legendre need few points.
    """
    total = np.zeros_like(h)
    for node, weight in zip(*np.polynomial.legendre.leggauss(32), strict=True):
        at = angle * (node + 1) / 2
        total += weight * np.exp(-(h**2 - 2 * h * k * np.sin(at) + k**2) / (2 * np.cos(at) ** 2))
    found: Floats = ndtr(h) * ndtr(k) + total * angle / (4 * np.pi)
    return found


def _factor(correlations: Floats) -> Floats:
    """F (N, N) with F Fᵀ the nearest that can be: negative eigenvalues cut off, diagonal 1."""
    values, vectors = np.linalg.eigh(correlations)
    # The symmetric root: the signs of eigenvectors, which every machine chooses anew, cancel out.
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    length: Floats = np.linalg.norm(root, axis=1, keepdims=True)
    return root / length


@dataclass(frozen=True)
class Seen:
    """What a model sees of n images. seen: u (n, N). offset, gain: θ₀ and θ₁ (n, 1)."""

    seen: Floats
    offset: Floats
    gain: Floats

    def scored(self, f: Floats, bias: Floats, errors: Floats) -> NDArray[np.float32]:
        """Scores (n, P) from f (n, P), the biases (P,) of prompts and ε (n, P)."""
        return (self.gain * f + self.offset + bias + errors).astype(np.float32)


@dataclass(frozen=True)
class ScoreModel:
    """Scores of any shard, from its labels. mentioned: the classes of each of P compound prompts.

    What is the same for all images is drawn from the seed, what is an image's own from the seed and
    the number of its shard: so they are the same whoever draws them, and in whatever order.
    """

    noise: Noise
    seed: int
    classes: int
    mentioned: Sequence[Sequence[int]]

    def scores(self, shard: int, labels: Labels) -> Scores:
        """The scores of a shard whose images have these labels (n, N)."""
        noise, rng = self.noise, stream(self.seed, SHARDS, shard)
        images = self._images(labels, rng)
        biases = self._classes[1]
        bonus, bias = self._prompts
        f = compound(images.seen, self.mentioned, bonus)
        return Scores(
            images.scored(images.seen, biases[0], noise.singleton * _normal(labels, rng)),
            images.scored(images.seen, biases[1], noise.auxiliary * _normal(labels, rng)),
            images.scored(f, bias, noise.compound * _normal(f, rng)),
        )

    def more(
        self, shard: int, labels: Labels, prompts: Sequence[tuple[str, Sequence[int]]]
    ) -> NDArray[np.float32]:
        """The scores (n, P') of other compound prompts, which see the same of the same images.

        What is a prompt's own is drawn from its text: it does not depend on what else is asked.
        """
        noise, images = self.noise, self._images(labels, stream(self.seed, SHARDS, shard))
        keys = [crc32(text.encode()) for text, _ in prompts]
        own = [stream(self.seed, MORE_PROMPTS, key).standard_normal(2) for key in keys]
        bonus, bias = np.array(own).reshape(-1, 2).T * [[noise.bonus_sd], [noise.prompt_sd]]
        bonus = np.maximum(noise.bonus + bonus, 0)
        f = compound(images.seen, [ids for _, ids in prompts], bonus)
        errors = [stream(self.seed, MORE, key, shard).standard_normal(len(f)) for key in keys]
        return images.scored(f, bias, noise.compound * np.reshape(errors, f.T.shape).T)

    def _images(self, labels: Labels, rng: np.random.Generator) -> Seen:
        noise, (base, lift) = self.noise, self._classes[0]
        flipped = rng.random(labels.shape) < np.where(labels, noise.miss, noise.ghost)
        return Seen(
            base + lift * (labels ^ flipped),
            rng.normal(noise.offset, noise.offset_sd, (len(labels), 1)),
            np.maximum(rng.normal(1, noise.gain_sd, (len(labels), 1)), 0),
        )

    @cached_property
    def _classes(self) -> tuple[Floats, Floats]:
        """a₀ and a₁ (2, N) and the biases of singleton and auxiliary prompts (2, N)."""
        noise, rng = self.noise, stream(self.seed, CLASSES, 0)
        size = (2, self.classes)
        means, sds = [[noise.base], [noise.lift]], [[noise.base_sd], [noise.lift_sd]]
        # Below zero, a class would hide itself.
        return np.maximum(rng.normal(means, sds, size), 0), rng.normal(0, noise.prompt_sd, size)

    @cached_property
    def _prompts(self) -> tuple[Floats, Floats]:
        """δ and the bias of each compound prompt, both (P,)."""
        noise, rng = self.noise, stream(self.seed, PROMPTS, 0)
        count = len(self.mentioned)
        bonus = np.maximum(rng.normal(noise.bonus, noise.bonus_sd, count), 0)
        return bonus, rng.normal(0, noise.prompt_sd, count)


def _normal(like: NDArray[Any], rng: np.random.Generator) -> Floats:
    """Normal variables in the shape of another array."""
    return rng.standard_normal(like.shape)


def compound(seen: Floats, mentioned: Sequence[Sequence[int]], bonus: Floats) -> Floats:
    """f (n, P) from the u (n, N) of each image, the classes of each prompt, and its δ (P,)."""
    f = np.empty((len(seen), len(mentioned)))
    sizes = np.array([len(ids) for ids in mentioned], dtype=np.int64)
    for size in np.unique(sizes):
        prompts = np.flatnonzero(sizes == size)
        u = seen[:, np.array([mentioned[prompt] for prompt in prompts.tolist()])]
        best = u.max(axis=2)
        others = (u.sum(axis=2) - best) / max(size - 1, 1)
        f[:, prompts] = best + bonus[prompts] * others
    return f
