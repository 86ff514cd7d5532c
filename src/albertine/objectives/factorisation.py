"""Order of factorisation of a permutation LM (XLNet), as two integers a token.

In XLNet each predicted token attends to the tokens before it in a random order (1906.08237, section 2.2;
zihangdai/xlnet, `data_utils.py`, `_local_perm`). It is drawn in blocks: one permutation σ of `block` places
serves every block of a half, so place r of block c has the rank c·block + σ(r), and a block sees all blocks
before it. Only targets and functional tokens ([SEP], [CLS]) keep their rank; ordinary tokens have none (-1):
they are visible to all, and see only each other.

Visibility is then, without a matrix of length × length,

    visible(i, j) = half_j < half_i  or  half_j = half_i and rank_j ≤ limit_i

with limit -1 for an ordinary token, its rank for a functional one, and for a target its rank in the content
stream and its rank - 1 in the query stream, which must not see its own token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from albertine.errors import SettingsError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class FactorisationOrder(NamedTuple):
    """Attention mask as intervals for segments of one length, int64 (S, L): key j is visible to query i where
    `when[j] < until[i]`.

    Attributes:
        when: of each token as a key; at least 0, so that rows of a memory, with -1, are visible to all.
        until: of each token as a query of the content stream. In the query stream it is the target's own
            `when`: it sees what its content row sees, except that row.
    """

    when: Ints
    until: Ints


def check_blocks(length: int, reuse: int, block: int) -> None:
    """Refuse a block that does not divide both halves.

    Args:
        length: tokens of a segment. reuse: of its first half; 0: it is one half.

    Raises:
        SettingsError: with the lengths of both halves.
    """
    halves = [reuse, length - reuse] if reuse else [length]
    if block < 1 or any(half % block for half in halves):
        lengths = " and ".join(str(half) for half in halves)
        raise SettingsError(
            f"a permutation block of {block} does not divide a segment of {lengths} tokens",
            where="objective.permutation.block",
            remedy=f"Use a divisor, such as {int(np.gcd.reduce(halves))}",
        )


def factorisation_order(
    targets: Bools, functional: Bools, draws: NDArray[np.float64], *, reuse: int, block: int
) -> FactorisationOrder:
    """The order of factorisation of segments.

    Args:
        targets: (S, L) the tokens to predict; none is functional.
        functional: (S, L) [SEP] and [CLS]: in the order, and never predicted.
        draws: uniform numbers (S, halves·block); their argsort in each half is its σ.
        reuse: tokens of the first half, which does not see the second; 0: there is one half.
        block: tokens of a permutation; it divides both halves.
    """
    length = targets.shape[1]
    ends = [reuse, length] if reuse else [length]
    ranked = targets | functional
    ranks, start = np.empty(targets.shape, dtype=np.int64), 0
    for half, end in enumerate(ends):
        sigma = np.argsort(draws[:, half * block : (half + 1) * block], axis=1)
        ranks[:, start:end] = _ranks(ranked[:, start:end], sigma)
        start = end
    first = np.arange(length) < reuse
    return visibility(ranks, np.where(first, 0, len(ends) - 1))


def visibility(ranks: Ints, half: Ints) -> FactorisationOrder:
    """The two integers of every token from its rank (S, L), -1 for none, and its half (L,)."""
    when = half * (ranks.shape[1] + 1) + ranks + 1
    # A content row's limit is its rank whether it is ordinary (-1), functional or a target.
    return FactorisationOrder(when, when + 1)


def _ranks(ranked: Bools, sigma: Ints) -> Ints:
    """Ranks (S, half) from the permutations (S, block) that all blocks of a half share."""
    blocks, block = ranked.shape[1] // sigma.shape[1], sigma.shape[1]
    order = np.tile(sigma, (1, blocks)) + np.repeat(np.arange(blocks) * block, block)
    return np.where(ranked, order, -1)
