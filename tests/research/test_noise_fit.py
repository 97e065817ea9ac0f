"""The noise model against its definition, on data drawn from it, and the order of its forms."""

from dataclasses import astuple
from functools import reduce
from itertools import combinations, pairwise
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import check_grad, minimize

from sparc_dist.research.noise_cells import Balance, CellCounts, CellSums, Pairs
from sparc_dist.research.noise_fit import NoiseFit, Rounds, Search, fit
from sparc_dist.research.noise_tables import ClassTerms, Quadratic, first_table, models
from tests.support.strategies import bounded

SEEDS = st.integers(0, 2**32 - 1)
Floats = NDArray[np.float64]
Recovered = tuple[dict[str, NoiseFit], dict[str, Floats]]


def all_pairs(count: int) -> NDArray[np.int64]:
    return np.array(list(combinations(range(count), 2)))


def made_up(seed: int, images: int = 30, count: int = 4) -> Pairs:
    """Returns scores that follow no model."""
    rng = np.random.default_rng(seed)
    pairs = all_pairs(count)
    scores = rng.normal(0.2, 0.02, (images, len(pairs))) + rng.normal(0, 0.02, len(pairs))
    return Pairs(scores, rng.random((images, count)) < rng.uniform(0.1, 0.6), pairs)


def drawn(images: int, count: int, noise: float) -> tuple[Pairs, dict[str, Floats]]:
    """Returns scores drawn from OR with a bonus per pair, and their true parameters."""
    rng = np.random.default_rng(5)
    pairs = all_pairs(count)
    labels = rng.random((images, count)) < 0.25
    truth = {
        "a0": rng.uniform(0.002, 0.008, count),
        "a1": rng.uniform(0.014, 0.026, count),
        "delta": rng.uniform(0.2, 0.8, len(pairs)),
    }
    term = truth["a0"] + labels * truth["a1"]
    u, w = term[:, pairs[:, 0]], term[:, pairs[:, 1]]
    theta1, theta0 = rng.uniform(0.5, 1.5, images), rng.normal(0.2, 0.01, images)
    f = np.maximum(u, w) + truth["delta"] * np.minimum(u, w)
    scores = theta1[:, None] * f + theta0[:, None] + rng.normal(0, noise, f.shape)
    truth["a0"], truth["a1"] = truth["a0"] * theta1.mean(), truth["a1"] * theta1.mean()
    return Pairs(scores.astype(np.float32), labels, pairs), truth


def fit_all(shards: list[Pairs], starts: int = 2, most_passes: int = 60) -> dict[str, NoiseFit]:
    """Fits all models on shards in this process."""
    balance = Balance.of(reduce(add, map(CellCounts.of, shards)))

    def one_pass(tables: Floats) -> CellSums:
        return reduce(add, (CellSums.of(shard, tables, balance) for shard in shards))

    classes, count = shards[0].classes, shards[0].labels.shape[1]
    return fit(one_pass, balance, classes, count, starts, most_passes)


@pytest.fixture(scope="module")
def recovered() -> Recovered:
    pairs, truth = drawn(800, 10, 0.002)
    return fit_all([pairs[:300], pairs[300:]]), truth


def test_the_true_parameters_are_recovered(
    recovered: Recovered,
) -> None:
    fits, truth = recovered
    variable = fits["or_variable_and_bonus"]
    assert variable.quartiles == pytest.approx(np.quantile(truth["delta"], [0.25, 0.75]), abs=0.03)
    assert variable.a1 == pytest.approx(truth["a1"], rel=0.05)
    # The level of a₀ shows only in δ_ij · a₀; the differences between classes show in all scores.
    assert variable.a0 is not None
    assert variable.a0 == pytest.approx(truth["a0"], abs=0.002)
    spread = truth["a0"] - truth["a0"].mean()
    assert variable.a0 - variable.a0.mean() == pytest.approx(spread, abs=0.0005)
    assert fits["or_static_and_bonus"].delta == pytest.approx(truth["delta"].mean(), abs=0.05)


def test_models_come_in_the_order_of_the_paper(
    recovered: Recovered,
) -> None:
    fvu = {name: fitted.fvu for name, fitted in recovered[0].items()}
    assert fvu["lookup_table"] <= fvu["or_variable_and_bonus"] < fvu["or_static_and_bonus"]
    assert fvu["or_static_and_bonus"] < min(fvu["additive"], fvu["only_or"])
    assert max(fvu["additive"], fvu["only_or"]) < fvu["only_and"] < fvu["constant"]
    assert max(fitted.passes for fitted in recovered[0].values()) <= 60
    assert all(fitted.converged for fitted in recovered[0].values())


@bounded(12)
@given(SEEDS, st.integers(2, 40), st.integers(2, 5), st.integers(3, 12))
def test_a_model_is_no_worse_than_those_it_contains(
    seed: int, images: int, count: int, most_passes: int
) -> None:
    pairs = made_up(seed, images, count)
    fits = fit_all([pairs], 1, most_passes)
    fvu = {name: fitted.fvu for name, fitted in fits.items()}
    chain = ["lookup_table", "or_variable_and_bonus", "or_static_and_bonus"]
    for inner in ("only_or", "additive"):
        assert all(fvu[a] <= fvu[b] + 1e-9 for a, b in pairwise([*chain, inner, "constant"]))
    assert fvu["lookup_table"] <= fvu["only_and"] + 1e-9 <= fvu["constant"] + 2e-9
    for fitted in fits.values():
        for bounded_below in (fitted.a0, fitted.a1, fitted.delta):
            assert bounded_below is None or not np.any(np.less(bounded_below, 0))


def by_definition(pairs: Pairs) -> Floats:
    """Returns the weight of each squared error in the FVU (n, P), image by image."""
    weights = np.zeros(pairs.scores.shape)
    for p, (i, j) in enumerate(pairs.classes):
        score = pairs.scores[:, p].astype(np.float64)
        cells = [tuple(row) for row in pairs.labels[:, [i, j]]]
        share = np.array([1 / len(set(cells)) / cells.count(cell) for cell in cells])
        mean = (share * score).sum()
        weights[:, p] = share / (share * (score - mean) ** 2).sum() / len(pairs.classes)
    return weights


def f_by_definition(name: str, x: Floats, pairs: Pairs) -> Floats:
    """Returns f of every image and prompt (n, P); x: a₀, a₁ and the δ, or the table."""
    if name == "lookup_table":
        values: Floats = x.reshape(-1, 4)[np.arange(len(pairs.classes)), pairs.cells]
        return values
    count = pairs.labels.shape[1]
    term = x[:count] + pairs.labels * x[count : 2 * count]
    u, w = term[:, pairs.classes[:, 0]], term[:, pairs.classes[:, 1]]
    high, low = np.maximum(u, w), np.minimum(u, w)
    forms = {"constant": 0 * u + 0.1, "only_and": low, "only_or": high, "additive": u + w}
    return forms[name] if name in forms else high + x[2 * count :] * low


def straightforward(name: str, pairs: Pairs, x: Floats) -> float:
    """Returns the FVU after L-BFGS-B over the model's parameters and every image's θ at once."""
    weights, images = by_definition(pairs), len(pairs)

    def loss(z: Floats) -> tuple[float, Floats]:
        theta1, theta0, x = z[:images, None], z[images : 2 * images, None], z[2 * images :]
        f = f_by_definition(name, x, pairs)
        error = theta1 * f + theta0 - pairs.scores
        slope = 2 * weights * error
        ahead = (f_by_definition(name, x + step, pairs) - f for step in 1e-7 * np.eye(len(x)))
        inner = [(slope * theta1 * change).sum() / 1e-7 for change in ahead]
        gradient = [(slope * f).sum(axis=1), slope.sum(axis=1), inner]
        return float((weights * error**2).sum()), np.concatenate(gradient)

    free = (None, None)
    bounds = [(0, None)] * images + [free] * images
    bounds += [free if name == "lookup_table" else (0, None)] * len(x)
    z = np.concatenate([np.ones(images), pairs.scores.mean(axis=1), x])
    options = {"maxiter": 400, "maxfun": 800}
    return float(minimize(loss, z, jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun)


#: Parameters of f for 4 classes and 6 pairs; the other models have 8.
SIZES = {"or_static_and_bonus": 9, "or_variable_and_bonus": 14, "lookup_table": 24}


def test_it_equals_a_direct_implementation() -> None:
    pairs, _ = drawn(60, 4, 0.004)
    pairs = Pairs((pairs.scores - 0.2) / 0.02, pairs.labels, pairs.classes)
    fits = fit_all([pairs])
    for name, fitted in fits.items():
        found = []
        for seed in (1, 2):
            spread = np.random.default_rng(seed).uniform(0.7, 1.3, 24)
            x = spread * np.concatenate([np.full(4, 0.1), np.ones(4), np.full(16, 0.5)])
            found.append(straightforward(name, pairs, x[: SIZES.get(name, 8)]))
        assert fitted.fvu == pytest.approx(min(found), abs=1e-3), (name, found)


def started(pairs: Pairs, seeds: list[int]) -> tuple[Rounds, dict[str, list[Search]]]:
    """Returns the shared passes, and every model at its start from every seed."""
    balance = Balance.of(CellCounts.of(pairs))
    rounds = Rounds(lambda tables: CellSums.of(pairs, tables, balance), balance, 60)
    first = Quadratic.of(rounds([first_table(len(pairs.classes))]), 0, balance)
    rngs = [np.random.default_rng(seed) for seed in seeds]
    return rounds, {
        name: [Search(model, model.improved(model.start(rng), first)) for rng in rngs]
        for name, model in models(pairs.classes, pairs.labels.shape[1]).items()
    }


def test_every_start_leads_to_the_same_fvu() -> None:
    rounds, found = started(drawn(300, 6, 0.003)[0], [11, 12, 13])
    rounds.run(search for group in found.values() for search in group)
    for name, group in found.items():
        losses = [search.loss for search in group]
        # AND cannot reverse step by step which class of a pair is the lower one.
        near = 1e-2 if name == "only_and" else 1e-3
        assert max(losses) - min(losses) < near, (name, losses)


@bounded(4)
@given(SEEDS)
def test_no_pass_raises_the_loss(seed: int) -> None:
    rounds, found = started(made_up(seed), [seed])
    searches = [search for group in found.values() for search in group]
    losses = []
    for rounds.most_passes in range(2, 20):
        rounds.run(searches)
        losses.append(np.array([search.loss for search in searches]))
    assert (np.diff(losses, axis=0) <= 1e-9).all()


@bounded(10)
@given(SEEDS)
def test_a_model_can_be_any_that_it_contains(seed: int) -> None:
    kinds = {
        name: model
        for name, model in models(all_pairs(4), 4).items()
        if isinstance(model, ClassTerms)
    }
    for outer, inner in (
        ("or_static_and_bonus", "only_or"),
        ("or_static_and_bonus", "additive"),
        ("or_variable_and_bonus", "or_static_and_bonus"),
    ):
        x = kinds[inner].start(np.random.default_rng(seed))
        same = kinds[outer].table(kinds[outer].nested(kinds[inner], x))
        np.testing.assert_allclose(same, kinds[inner].table(x))


@bounded(20)
@given(SEEDS, st.lists(st.integers(0, 30), max_size=3))
def test_shards_add_up(seed: int, cuts: list[int]) -> None:
    pairs = made_up(seed)
    pieces = [pairs[a:b] for a, b in pairwise([0, *sorted(cuts), 30])]
    tables = np.random.default_rng(seed).uniform(0, 2, (3, 6, 4))
    counts = reduce(add, map(CellCounts.of, pieces))
    balance = Balance.of(counts)
    sums = reduce(add, (CellSums.of(piece, tables, balance) for piece in pieces))
    for merged, whole in (
        (counts, CellCounts.of(pairs)),
        (sums, CellSums.of(pairs, tables, balance)),
    ):
        for a, b in zip(astuple(merged), astuple(whole), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@bounded(20)
@given(SEEDS)
def test_each_image_gets_its_best_theta(seed: int) -> None:
    pairs = made_up(seed)
    balance = Balance.of(CellCounts.of(pairs))
    weights, cells = by_definition(pairs), pairs.cells
    table = np.random.default_rng(seed).uniform(0, 2, (6, 4))
    sums = CellSums.of(pairs, np.stack([table, np.full((6, 4), 0.1)]), balance)
    loss, squares, products = 0.0, np.zeros((6, 4)), np.zeros((6, 4))
    for score, cell, weight in zip(pairs.scores, cells, weights, strict=True):
        f, root = table[np.arange(6), cell], np.sqrt(weight)
        theta1, theta0 = np.linalg.lstsq(
            np.stack([f, np.ones(6)], 1) * root[:, None], score * root
        )[0]
        if theta1 < 0:
            theta1, theta0 = 0.0, np.average(score, weights=weight)
        loss += (weight * (score - theta1 * f - theta0) ** 2).sum()
        squares[np.arange(6), cell] += theta1**2
        products[np.arange(6), cell] += theta1 * (score - theta0)
    assert sums.loss[0] == pytest.approx(loss)
    np.testing.assert_allclose(sums.squares[0], squares, atol=1e-12)
    np.testing.assert_allclose(sums.products[0], products, atol=1e-12)
    level = np.average(pairs.scores, axis=1, weights=weights)[:, None]
    assert sums.loss[1] == pytest.approx((weights * (pairs.scores - level) ** 2).sum())


@bounded(20)
@given(SEEDS, st.sampled_from(["only_and", "only_or", "additive", "or_static_and_bonus"]))
def test_a_step_without_the_images_never_raises_the_loss(seed: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    model = models(all_pairs(4), 4)[name]
    assert isinstance(model, ClassTerms)
    loss = Quadratic(rng.uniform(0, 1, (6, 4)), rng.uniform(-0.5, 2, (6, 4)))
    x = model.start(rng)
    assert loss(model.table(model.improved(x, loss))) <= loss(model.table(x))
    objective = model._objective(loss)
    value, slope = (lambda a: objective(a)[0]), (lambda a: objective(a)[1])
    assert check_grad(value, slope, x[:8]) < 1e-5


def test_empty_cells_and_flat_prompts_weigh_nothing() -> None:
    pairs = made_up(0, 40, 5)
    scores, labels = pairs.scores.copy(), pairs.labels.copy()
    labels[:, 1] &= ~labels[:, 0]  # never both
    unused = (pairs.classes == 4).any(axis=1)
    scores[:, unused] = 0.25
    pairs = Pairs(scores, labels, pairs.classes)
    without = Pairs(scores[:, ~unused], labels, pairs.classes[~unused])
    weights = Balance.of(CellCounts.of(pairs)).weights
    assert weights[0, 3] == 0 < weights[0, :3].min()
    assert not weights[unused].any()
    used = np.take_along_axis(weights, pairs.cells.T.astype(int), axis=1).T[:, ~unused]
    np.testing.assert_allclose(used, by_definition(without))
    fits = fit_all([pairs], 1, 10)
    for name, fitted in fit_all([without], 1, 10).items():
        assert np.isfinite(fits[name].table).all()
        assert fits[name].fvu == pytest.approx(fitted.fvu, rel=0.02)
    variable = fits["or_variable_and_bonus"]
    assert isinstance(variable.a0, np.ndarray)
    assert isinstance(variable.delta, np.ndarray)
    assert np.isnan(variable.a0).tolist() == [False] * 4 + [True]
    assert np.isnan(variable.delta).tolist() == unused.tolist()
    assert variable.quartiles == pytest.approx(np.nanquantile(variable.delta, [0.25, 0.75]))


def test_scores_that_never_differ_are_an_error() -> None:
    flat = Pairs(np.full((3, 6), 0.1), np.eye(3, 4, dtype=bool), all_pairs(4))
    with pytest.raises(ValueError, match="No pair prompt's score differs"):
        fit_all([flat])


@bounded(3)
@given(SEEDS)
def test_levels_and_units_change_nothing(seed: int) -> None:
    pairs = made_up(seed)
    rng = np.random.default_rng(seed)
    balance = Balance.of(CellCounts.of(pairs))
    tables = rng.uniform(0, 2, (2, 6, 4))
    # The weights depend on every image's level; the rest does not.
    raised = Pairs(pairs.scores + rng.normal(0, 0.1, (30, 1)), pairs.labels, pairs.classes)
    for a, b in zip(
        astuple(CellSums.of(raised, tables, balance)),
        astuple(CellSums.of(pairs, tables, balance)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
    # A power of two, so that not even rounding differs: on noise the models have many minima.
    scaled = Pairs(64 * pairs.scores, pairs.labels, pairs.classes)
    fits, others = fit_all([pairs], 1, 4), fit_all([scaled], 1, 4)
    assert not fits["lookup_table"].converged  # in four passes
    for name, fitted in fits.items():
        assert others[name].fvu == pytest.approx(fitted.fvu, rel=1e-9)
        assert others[name].table == pytest.approx(64 * fitted.table, rel=1e-9)
