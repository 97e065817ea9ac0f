"""Simulated labels and scores: draws from the paper's noise model, at any size, without images.

Labels are drawn from a matrix of joint probabilities by the dichotomised Gaussian: class i is
present if the i-th of N correlated normal variables is below a threshold. Scores follow

    s = θ₁(t) · f(ỹ) + θ₀(t) + bias of the prompt + ε,    f = max(u) + δ · (mean of the other u),

with u_i = a₀ⁱ + a₁ⁱ ỹ_i for the classes of the prompt. For a pair f is the OR with AND-bonus, for
one class it is u itself. ỹ are the labels with flips; all prompts see the same ỹ of an image.
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

from sparc_dist.core import Floats, Scores

Labels = NDArray[np.bool_]

#: The kinds of random streams, so that no two draws from one seed share random numbers.
CLASSES, PROMPTS, SHARDS, LABELS, TRAINING, MORE_PROMPTS, MORE = range(7)

LARGEST = 10  # upper limit of a rate that is not a probability: far above any cosine

MOST_FREQUENT, LEAST_FREQUENT = 0.5, 0.002  # COCO's person and hair drier
LABELS_PER_IMAGE = 2.9  # as in COCO
CLASSES_PER_CONTEXT = 8
IN_CONTEXT = 0.5  # approximate upper limit of a class's probability within its contexts
ANYWHERE = 0.1  # share of a class's images that is spread over all contexts
RARE_COINCIDENCE = 0.1  # as a share of the probability under independence


@dataclass(frozen=True)
class Noise:
    """The rates of the noise model. A value with an SD is the mean.

    miss, ghost: how often a present class is not seen, and an absent one is. The paper flips labels
    at one rate; with 77 of 80 classes absent, that would show more ghosts than objects.
    offset: θ₀ of an image. gain_sd: SD of θ₁, whose mean is 1. base, lift: a₀ and a₁ of a class.
    bonus: δ of a compound prompt. prompt_sd: SD of the bias of a prompt.
    singleton, auxiliary, compound: SD of ε of a score of that kind.

    At COCO's size, the defaults lead to about the paper's mAPs, in the same order. Raw scores
    suffer from θ₀, which debiasing removes. Prompts such as "A and B" see the same flips as the
    singleton of A, but each has its own ε, so their mean has less noise; and A is more likely
    when B is seen. Each of the two accounts for about half of SPARC's gain. The highest of these
    scores is a poor sign of A, because a single companion raises it. Raising the second and third
    highest without A takes several companions at once, while A raises them all.
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
            value, limit = getattr(self, name), 1 if name in ("miss", "ghost") else LARGEST
            if not 0 <= value <= limit:
                raise ValueError(f"{name} is {value}; it must be from 0 to {limit}")


def stream(seed: int, kind: int, *numbers: int) -> np.random.Generator:
    """Returns the generator of one shard, block or prompt; it is the same in every process."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(kind, *numbers)))


def built_in_cooccurrence(classes: int) -> Floats:
    """Returns joint probabilities (N, N) like COCO's, with contexts such as kitchens and streets.

    An image has one context, all equally likely; within a context, classes are independent.
    A class belongs to one context, every fourth to two, a frequent one to as many as it needs.
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
    """Returns class frequencies (N,): MOST_FREQUENT, then a geometric series to LEAST_FREQUENT.

    The series starts where the sum is LABELS_PER_IMAGE, or less if there are few classes.
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
    """A dichotomised Gaussian. thresholds: (N,). factor: (N, N), of the latent correlations."""

    thresholds: Floats
    factor: Floats

    @classmethod
    def from_joint(cls, joint: Floats) -> LabelModel:
        """Returns the model of joint probabilities (N, N), class frequencies on the diagonal."""
        thresholds = ndtri(np.diag(joint))
        return cls(thresholds, _factor(latent_correlations(joint)))

    def draw(self, images: int, rng: np.random.Generator) -> Labels:
        """Returns the labels (n, N) of ``images`` images."""
        latent = rng.standard_normal((images, len(self.thresholds))) @ self.factor.T
        present: Labels = latent < self.thresholds
        return present


def latent_correlations(joint: Floats) -> Floats:
    """Returns the correlations (N, N) of normal variables that lead to these joint probabilities.

    A class that is never or always present is uncorrelated with all others.
    """
    frequency = np.diag(joint)
    varies = (frequency > 0) & (frequency < 1)
    rows, columns = np.triu_indices(len(joint), 1)
    pairs = varies[rows] & varies[columns]
    rows, columns = rows[pairs], columns[pairs]
    p, q = frequency[rows], frequency[columns]
    # Pairs that never occur together could have any correlation down to −1, which would contradict
    # their correlations with other classes. They are given a small joint probability instead.
    wanted = np.maximum(joint[rows, columns], RARE_COINCIDENCE * p * q)
    found = np.zeros_like(joint)
    found[rows, columns] = np.sin(_angles(ndtri(p), ndtri(q), wanted))
    return found + found.T + np.eye(len(joint))


def _angles(h: Floats, k: Floats, wanted: Floats) -> Floats:
    """Returns the arcsines of the correlations with P(X < h, Y < k) = wanted, by bisection."""
    low, high = np.full_like(h, -np.pi / 2), np.full_like(h, np.pi / 2)
    for _ in range(40):
        middle = (low + high) / 2
        too_small = both_below(h, k, middle) < wanted
        low, high = np.where(too_small, middle, low), np.where(too_small, high, middle)
    return (low + high) / 2


def both_below(h: Floats, k: Floats, angle: Floats) -> Floats:
    """Returns P(X < h, Y < k) for standard normals with the correlation sin(angle), each (n,).

    By Plackett, its derivative by the correlation is the density at (h, k). As a function of the
    angle this is smooth, so that Gauss-Legendre quadrature needs few points.
    """
    total = np.zeros_like(h)
    for node, weight in zip(*np.polynomial.legendre.leggauss(32), strict=True):
        at = angle * (node + 1) / 2
        total += weight * np.exp(-(h**2 - 2 * h * k * np.sin(at) + k**2) / (2 * np.cos(at) ** 2))
    found: Floats = ndtr(h) * ndtr(k) + total * angle / (4 * np.pi)
    return found


def _factor(correlations: Floats) -> Floats:
    """Returns F (N, N) with F Fᵀ ≈ correlations: negative eigenvalues cut off, diagonal 1."""
    values, vectors = np.linalg.eigh(correlations)
    # In the symmetric root the signs of eigenvectors, which differ between machines, cancel out.
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
        """Returns scores (n, P) from f (n, P), the biases (P,) of prompts and ε (n, P)."""
        return (self.gain * f + self.offset + bias + errors).astype(np.float32)


@dataclass(frozen=True)
class ScoreModel:
    """Draws scores of shards from labels. mentioned: the classes of each of P compound prompts.

    What all images share is drawn from the seed, and what belongs to an image from the seed and the
    number of its shard. So scores do not depend on the process or the order of the draws.
    """

    noise: Noise
    seed: int
    classes: int
    mentioned: Sequence[Sequence[int]]

    def scores(self, shard: int, labels: Labels) -> Scores:
        """Returns the scores of a shard whose images have these labels (n, N)."""
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
        """Returns the scores (n, P') of other compound prompts, with the same flips of labels.

        What belongs to a prompt is drawn from its text, so it does not depend on the others.
        """
        noise, images = self.noise, self._images(labels, stream(self.seed, SHARDS, shard))
        keys = [crc32(text.encode()) for text, _ in prompts]
        draws = [stream(self.seed, MORE_PROMPTS, key).standard_normal(2) for key in keys]
        bonus, bias = np.array(draws).reshape(-1, 2).T * [[noise.bonus_sd], [noise.prompt_sd]]
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
        # A negative lift would lower the scores of a class where it is present.
        return np.maximum(rng.normal(means, sds, size), 0), rng.normal(0, noise.prompt_sd, size)

    @cached_property
    def _prompts(self) -> tuple[Floats, Floats]:
        """δ and the bias of each compound prompt, both (P,)."""
        noise, rng = self.noise, stream(self.seed, PROMPTS, 0)
        count = len(self.mentioned)
        bonus = np.maximum(rng.normal(noise.bonus, noise.bonus_sd, count), 0)
        return bonus, rng.normal(0, noise.prompt_sd, count)


def _normal(like: NDArray[Any], rng: np.random.Generator) -> Floats:
    """Returns standard normal variables in the shape of another array."""
    return rng.standard_normal(like.shape)


def compound(seen: Floats, mentioned: Sequence[Sequence[int]], bonus: Floats) -> Floats:
    """Returns f (n, P) from u (n, N) of the images, the classes of each prompt, and its δ (P,)."""
    f = np.empty((len(seen), len(mentioned)))
    sizes = np.array([len(ids) for ids in mentioned], dtype=np.int64)
    for size in np.unique(sizes):
        prompts = np.flatnonzero(sizes == size)
        u = seen[:, np.array([mentioned[prompt] for prompt in prompts.tolist()])]
        best = u.max(axis=2)
        others = (u.sum(axis=2) - best) / max(size - 1, 1)
        f[:, prompts] = best + bonus[prompts] * others
    return f
