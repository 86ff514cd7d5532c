"""The order of factorisation equals XLNet's `_local_perm`, matrix for matrix."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from albertine.errors import SettingsError
from albertine.objectives.factorisation import check_blocks, factorisation_order

FACTS = Path(__file__).parent / "facts" / "xlnet_data.npz"


def seen(when: np.ndarray, until: np.ndarray) -> np.ndarray:
    """(L, L): whether query row sees key column."""
    return when[None, :] < until[:, None]


def official(functional: np.ndarray, masked: np.ndarray, sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The blocked matrix (n, n) and targets (n,) by the rules of the official code, one cell at a time."""
    n, block = len(functional), len(sigma)
    rank = [(i // block) * block + int(sigma[i % block]) for i in range(n)]
    ordinary = [not masked[i] and not functional[i] for i in range(n)]
    target = [bool(masked[i]) and not functional[i] for i in range(n)]
    shown = [-1 if ordinary[i] else rank[i] for i in range(n)]
    blocked = np.zeros((n, n), dtype=bool)
    for i in range(n):
        own = shown[i] if target[i] else shown[i] + 1
        for j in range(n):
            blocked[i, j] = own <= shown[j] and not ordinary[j]
    return blocked, np.array(target)


def draws_of(*sigmas: np.ndarray) -> np.ndarray:
    """Draws whose order is the permutations."""
    return np.concatenate([np.argsort(sigma) / len(sigma) for sigma in sigmas])[None]


def drawn(rng: np.random.Generator) -> tuple[int, int, np.ndarray, np.ndarray]:
    block = int(rng.choice([8, 16, 32, 64, 256]))
    n = block * int(rng.integers(1, 3 if block > 32 else 5))
    return block, n, rng.random(n) < rng.choice([0, 0.05, 0.2]), rng.random(n) < rng.choice([0.1, 0.5])


def test_the_order_is_the_official_one_in_500_drawings() -> None:
    """Facts of the official function under tensorflow 2.15.1, with the same σ; block 8 to 256."""
    facts, places = np.load(FACTS), [0, 0, 0]
    sizes = facts["perm/sizes"].astype(int)
    flat = {k: np.unpackbits(facts[f"perm/{k}"]).astype(bool) for k in ("functional", "masked", "targets")}
    matrices = np.unpackbits(facts["perm/blocked_first20"]).astype(bool)
    for number, (n, block) in enumerate(sizes.tolist()):
        cut = slice(places[0], places[0] + n)
        functional, masked, targets = (flat[k][cut] for k in ("functional", "masked", "targets"))
        sigma = facts["perm/sigma"][places[1] : places[1] + block].astype(int)
        order = factorisation_order(targets[None], functional[None], draws_of(sigma), reuse=0, block=block)
        when, until = order.when[0], order.until[0]
        assert ((masked & ~functional) == targets).all()
        # The official matrix is that of the query stream; the content stream adds a row's own place to it.
        blocked = ~seen(when, np.where(targets, when, until))
        if number < 20:
            assert (blocked == matrices[places[2] : places[2] + n * n].reshape(n, n)).all()
        digest = hashlib.sha256(np.packbits(blocked).tobytes()).digest()[:8]
        assert digest == facts["perm/blocked_sha"][number].tobytes()
        assert (~seen(when, until) == (blocked & ~np.eye(n, dtype=bool))).all()
        places = [places[0] + n, places[1] + block, places[2] + n * n]
    assert len(sizes) == 500 and {8, 256} <= set(sizes[:, 1].tolist())


@pytest.mark.parametrize("seed", range(60))
def test_two_halves_of_a_segment(seed: int) -> None:
    """The reused half does not attend to the new one, the new one attends to all of it; each has a σ of its
    own."""
    rng = np.random.default_rng(seed)
    block, n, functional, masked = drawn(rng)
    reuse, new = n, block * int(rng.integers(1, 3))
    functional = np.concatenate([functional, rng.random(new) < 0.1])
    masked = np.concatenate([masked, rng.random(new) < 0.3])
    sigmas = [rng.permutation(block), rng.permutation(block)]
    first, t0 = official(functional[:reuse], masked[:reuse], sigmas[0])
    second, t1 = official(functional[reuse:], masked[reuse:], sigmas[1])
    blocked = np.block([[first, np.ones((reuse, new), bool)], [np.zeros((new, reuse), bool), second]])
    targets = np.concatenate([t0, t1])
    order = factorisation_order(targets[None], functional[None], draws_of(*sigmas), reuse=reuse, block=block)
    when, until = order.when[0], order.until[0]
    assert (~seen(when, np.where(targets, when, until)) == blocked).all()
    assert (~seen(when, until) == (blocked & ~np.eye(n + new, dtype=bool))).all()
    assert when.min() >= 0, "a memory's rows have -1 and are seen by all"


def test_segments_of_a_batch_have_their_own_orders() -> None:
    rng = np.random.default_rng(1)
    targets = rng.random((5, 32)) < 0.4
    functional = ~targets & (rng.random((5, 32)) < 0.1)
    draws = rng.random((5, 32))
    both = factorisation_order(targets, functional, draws, reuse=16, block=16)
    for s in range(5):
        one = factorisation_order(
            targets[s : s + 1], functional[s : s + 1], draws[s : s + 1], reuse=16, block=16
        )
        assert (one.when[0] == both.when[s]).all() and (one.until[0] == both.until[s]).all()
    assert len({row.tobytes() for row in np.argsort(draws[:, :16], 1)}) == 5


def test_every_order_of_a_block_is_as_likely() -> None:
    rng = np.random.default_rng(2)
    targets = np.ones((6000, 3), dtype=bool)
    order = factorisation_order(targets, ~targets, rng.random((6000, 3)), reuse=0, block=3)
    _, counts = np.unique(order.when, axis=0, return_counts=True)
    assert len(counts) == 6 and ((counts - 1000) ** 2 / 1000).sum() < 20.5  # χ²(5), p > .001


@pytest.mark.parametrize(("length", "reuse", "block"), [(96, 0, 64), (96, 64, 64), (96, 32, 5), (64, 0, 0)])
def test_a_block_that_does_not_divide(length: int, reuse: int, block: int) -> None:
    with pytest.raises(SettingsError, match=r"does not divide.*Use a divisor, such as (32|96|64)"):
        check_blocks(length, reuse, block)
    check_blocks(96, 32, 32)
    check_blocks(96, 0, 48)
