"""Sharing plan: the blocks that each layer of an encoder uses, and its own parameters beside them.

In BERT every layer has its own blocks, in ALBERT all layers use block 0; the paper's attention-only and
FFN-only sharing (Table 4), groups and several inner blocks are other plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from albertine.errors import SettingsError

OWN = ("norms", "residuals", "injection")
_OWN_IN_WORDS = {
    "norms": "LayerNorms",
    "residuals": "residual factors",
    "injection": "share of the embeddings",
}
MAX_RANK = 1 << 12


class LoopStructure(NamedTuple):
    """Layers of their own before and after a core of blocks that is repeated.

    Attributes:
        prelude: layers before it. core: its blocks. loops: how often it is computed. coda: layers after it.
    """

    prelude: int
    core: int
    loops: int
    coda: int


@dataclass(frozen=True)
class SharingPlan:
    """Block index of each layer, for attention and feed-forward separately.

    Blocks are renumbered in the order of their first use, so that equivalent plans are equal. Each LayerNorm
    belongs to the block whose output it normalises, which is how the paper's parameter counts of Table 4 come
    out.

    Attributes:
        attention, feed_forward: block index of each layer.
        own: parameters of every layer beside its blocks: "norms", the LayerNorms of both blocks; "residuals",
            a factor of each residual branch; "injection", a factor of the embeddings that are added to its
            input.
        low_rank: rank r of a map B·A for each block and layer, added to the residual branch; 0: none.

    Raises:
        SettingsError: no layer, unequal lengths, a negative index, or an unknown name in `own`.
    """

    attention: tuple[int, ...]
    feed_forward: tuple[int, ...]
    own: tuple[str, ...] = ()
    low_rank: int = 0

    def __post_init__(self) -> None:
        if len(self.attention) != len(self.feed_forward) or not self.attention:
            raise SettingsError(
                f"a sharing plan names one attention and one feed-forward block per depth, "
                f"got {len(self.attention)} and {len(self.feed_forward)}"
            )
        if min(*self.attention, *self.feed_forward) < 0:
            raise SettingsError("a sharing plan cannot name a block below zero")
        if unknown := sorted(set(self.own) - set(OWN)):
            raise SettingsError(
                f"no depth can have `{unknown[0]}` of its own", remedy=f"Use any of {', '.join(OWN)}"
            )
        if type(self.low_rank) is not int or not 0 <= self.low_rank <= MAX_RANK:
            raise SettingsError(
                f"low_rank must be a whole number from 0 to {MAX_RANK}, got {self.low_rank!r}"
            )
        object.__setattr__(self, "own", tuple(name for name in OWN if name in self.own))
        object.__setattr__(self, "attention", _in_order_of_use(self.attention))
        object.__setattr__(self, "feed_forward", _in_order_of_use(self.feed_forward))

    @classmethod
    def shared(cls, depth: int) -> SharingPlan:
        """All layers share one block: ALBERT."""
        return cls((0,) * depth, (0,) * depth)

    @classmethod
    def unshared(cls, depth: int) -> SharingPlan:
        """Nothing is shared: BERT."""
        return cls(tuple(range(depth)), tuple(range(depth)))

    @classmethod
    def attention_only(cls, depth: int) -> SharingPlan:
        """Shared attention, each layer its own feed-forward (paper, Table 4, 'shared-attention')."""
        return cls((0,) * depth, tuple(range(depth)))

    @classmethod
    def feed_forward_only(cls, depth: int) -> SharingPlan:
        """Shared feed-forward, each layer its own attention (paper, Table 4, 'shared-FFN')."""
        return cls(tuple(range(depth)), (0,) * depth)

    @classmethod
    def grouped(cls, layers: int, groups: int, inner: int = 1) -> SharingPlan:
        """Google's groups: layer l uses group floor(l·groups/layers), which applies `inner` distinct blocks
        in turn.

        The total depth is layers × inner (google-research/albert, `modeling.py`).
        """
        if not 1 <= groups <= layers or inner < 1:
            raise SettingsError(f"{groups} groups of {inner} inner blocks do not fit {layers} layers")
        blocks = tuple(layer * groups // layers * inner + i for layer in range(layers) for i in range(inner))
        return cls(blocks, blocks)

    @classmethod
    def looped(cls, prelude: int, core: int, loops: int, coda: int) -> SharingPlan:
        """`prelude` layers of their own, `core` blocks that are repeated `loops` times, and `coda` layers of
        their own: the layout of recurrent-depth models (Geiping et al. 2025, arXiv 2502.05171).

        Raises:
            SettingsError: a negative number, no block in the core, or no loop.
        """
        for name, number, least in (
            ("prelude", prelude, 0),
            ("core", core, 1),
            ("loops", loops, 1),
            ("coda", coda, 0),
        ):
            if type(number) is not int or number < least:
                raise SettingsError(f"{name} must be a whole number from {least} on, got {number!r}")
        last = prelude + core
        repeated = [*range(prelude, last)] * loops
        blocks = (*range(prelude), *repeated, *range(last, last + coda))
        return cls(blocks, blocks)

    @property
    def depth(self) -> int:
        return len(self.attention)

    @property
    def num_attention_blocks(self) -> int:
        return max(self.attention) + 1

    @property
    def num_feed_forward_blocks(self) -> int:
        return max(self.feed_forward) + 1

    @property
    def is_unshared(self) -> bool:
        """Whether every layer has its own blocks."""
        return self.blocks == SharingPlan.unshared(self.depth)

    @property
    def blocks(self) -> SharingPlan:
        """The plan without `own` and `low_rank`."""
        return SharingPlan(self.attention, self.feed_forward)

    @property
    def loop_structure(self) -> LoopStructure | None:
        """The arguments of `looped` that give these blocks; None where no core is repeated."""
        first = next((d for d, block in enumerate(self.attention) if block in self.attention[:d]), None)
        if first is None or self.attention != self.feed_forward:
            return None
        prelude = self.attention[first]
        core = first - prelude
        coda = self.num_attention_blocks - first
        loops = (self.depth - prelude - coda) // core
        found = LoopStructure(prelude, core, loops, coda)
        return found if self.blocks == SharingPlan.looped(*found) else None

    def depth_of(self, loops: int) -> int:
        """Number of layers with another number of loops.

        Raises:
            SettingsError: this plan repeats no core, or there is no loop.
        """
        if (found := self.loop_structure) is None:
            raise SettingsError(
                "this plan repeats no core of blocks, so it has no number of loops",
                remedy="Give a number of layers, or use SharingPlan.looped",
            )
        return SharingPlan.looped(*found._replace(loops=loops)).depth

    def layer_order(self, depth: int) -> tuple[int, ...]:
        """The layers of this plan, from 0, that an encoder of `depth` layers computes.

        With a repeated core these are the prelude, as many loops as give `depth`, and the coda: the first
        loops, and beyond the trained number the last one again and again. Without it the first layers.

        Raises:
            SettingsError: no number of loops gives `depth`, or there are fewer layers.
        """
        found = self.loop_structure
        if found is None:
            if not 1 <= depth <= self.depth:
                raise SettingsError(
                    f"{depth} layers: this encoder repeats no core of blocks, so it can compute its first 1 "
                    f"to {self.depth} layers"
                )
            return tuple(range(depth))
        prelude, core, trained, coda = found
        loops, rest = divmod(depth - prelude - coda, core)
        if rest or loops < 1:
            below = prelude + coda + max(loops, 1) * core
            near = [below] if loops < 1 else [below, below + core]
            raise SettingsError(
                f"{depth} layers are no whole number of loops of this encoder, which has {prelude} + "
                f"{core} × loops + {coda}",
                remedy=f"Take {' or '.join(map(str, near))}",
            )
        end = prelude + core * trained
        repeated = (prelude + min(i, trained - 1) * core + j for i in range(loops) for j in range(core))
        return (*range(prelude), *repeated, *range(end, end + coda))

    def with_layers(self, depth: int) -> SharingPlan:
        """The plan of the layers of `layer_order`. Raises as it."""
        order = self.layer_order(depth)
        attention, feed_forward = (
            tuple(part[d] for d in order) for part in (self.attention, self.feed_forward)
        )
        return replace(self, attention=attention, feed_forward=feed_forward)

    def truncated(self, depth: int) -> SharingPlan:
        """The plan of the first `depth` layers."""
        if not 1 <= depth <= self.depth:
            raise SettingsError(f"depth {depth} is outside 1..{self.depth}")
        return replace(self, attention=self.attention[:depth], feed_forward=self.feed_forward[:depth])

    def resized(self, depth: int) -> SharingPlan:
        """The same pattern of sharing over another number of layers, for attention and feed-forward
        separately.

        One block for all layers, or one for each, stays so; groups keep their number and inner blocks, as in
        Google's configuration with another number of layers.

        Raises:
            SettingsError: no layer; a plan of one layer, which is ambiguous; or blocks without such a
                pattern, or one that does not fit `depth`.
        """
        if depth < 1:
            raise SettingsError(f"a sharing plan has at least one depth, got {depth}")
        if depth == self.depth:
            return self
        if self.depth == 1:
            raise SettingsError(
                f"a plan of one depth does not define the sharing of {depth} depths",
                remedy=f"Use SharingPlan.shared({depth}), unshared({depth}) or another plan",
            )
        attention, feed_forward = (_resized(x, depth) for x in (self.attention, self.feed_forward))
        return replace(self, attention=attention, feed_forward=feed_forward)

    def groups(self, build: GroupRule | None = None) -> tuple[int, int, int] | None:
        """(layers, groups, inner) of a grouping rule that equals this plan, with the fewest inner blocks, or
        None.

        Args:
            build: (layers, groups, inner) → plan, by default `grouped`.
        """
        if self.attention != self.feed_forward:
            return None
        for inner in range(1, self.depth + 1):
            layers, rest = divmod(self.depth, inner)
            groups, odd = divmod(self.num_attention_blocks, inner)
            if rest or odd or not 1 <= groups <= layers:
                continue
            if self.blocks == (build or SharingPlan.grouped)(layers, groups, inner):
                return layers, groups, inner
        return None


GroupRule = Callable[[int, int, int], SharingPlan]


def _in_order_of_use(blocks: Iterable[int]) -> tuple[int, ...]:
    names: dict[int, int] = {}
    return tuple(names.setdefault(block, len(names)) for block in blocks)


def _resized(blocks: tuple[int, ...], depth: int) -> tuple[int, ...]:
    """The pattern of one part of a plan, over `depth` layers."""
    if len(set(blocks)) == len(blocks):
        return tuple(range(depth))
    if (found := SharingPlan(blocks, blocks).groups()) is not None:
        _, groups, inner = found
        layers, rest = divmod(depth, inner)
        # With a group a layer nothing would be shared any more: another plan, unless all is one block.
        if not rest and (groups < layers or groups * inner == 1):
            return SharingPlan.grouped(layers, groups, inner).attention
    raise SettingsError(
        f"the blocks {blocks} have no pattern that fits {depth} depths",
        remedy=f"Keep {len(blocks)} depths, or choose for {depth}: SharingPlan.shared({depth}), "
        f"unshared({depth}), grouped({depth}, groups), or the block of every depth",
    )


def sharing_in_words(plan: SharingPlan) -> str:
    """Description of a sharing plan, to compare with a paper."""
    words = [_OWN_IN_WORDS[name] for name in plan.own]
    if plan.low_rank:
        words.append(f"additions of rank {plan.low_rank}")
    own = f"; every depth has its own {' and '.join(words)}" if words else ""
    return _blocks_in_words(plan) + own


def _blocks_in_words(plan: SharingPlan) -> str:
    depths = f"{plan.depth} depths" if plan.depth > 1 else "1 depth"
    found = plan.loop_structure
    if found is not None and found != (0, 1, plan.depth, 0):
        blocks = f"{found.core} blocks" if found.core > 1 else "one block"
        ends = [
            f"{n} of their own {where}"
            for n, where in ((found.prelude, "before"), (found.coda, "after"))
            if n
        ]
        own = f", {' and '.join(ends)}" if ends else ""
        return f"{depths}, a core of {blocks} used {found.loops} times{own}"
    if plan.attention == plan.feed_forward:
        return f"{depths}, {_share(plan.attention, 'block')}"
    attention = _share(plan.attention, "attention block")
    return f"{depths}, {attention}, {_share(plan.feed_forward, 'feed-forward block')}"


def _share(blocks: tuple[int, ...], noun: str) -> str:
    number = max(blocks) + 1
    if number == 1:
        return f"one {noun} used at every depth" if len(blocks) > 1 else f"one {noun}"
    if number == len(blocks):
        return f"each with its own {noun}"
    # For example 0-5 and 6-11 of twelve depths; an alternating plan lists its depths one by one.
    users = [[d for d, b in enumerate(blocks) if b == block] for block in range(number)]
    return f"{number} {noun}s: " + "; ".join(
        f"{_span(depths)} use number {i}" for i, depths in enumerate(users)
    )


def _span(depths: list[int]) -> str:
    first, last = depths[0] + 1, depths[-1] + 1
    if len(depths) == last - first + 1 and len(depths) > 1:
        return f"{first} to {last}"
    return ", ".join(str(d + 1) for d in depths)
