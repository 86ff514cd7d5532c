"""Foreign parameter names as data, and the one driver that applies them in both directions without loss."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from albertine.errors import ModelError
from albertine.model.sharing import SharingPlan

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = re.compile(r"^(encoder\.(?:attention|feed_forward)\.)(\d+)\.")
ATTENTION = "encoder.attention.{n}."
FEED_FORWARD = "encoder.feed_forward.{n}."
OURS = "albertine."
"""Prefix of names that are in no foreign layout."""
SHOWN = 4


@dataclass(frozen=True)
class Rule:
    """One parameter, or one per block.

    Attributes:
        ours: our name; the number of a block is written `{n}`, where the rule is of all blocks.
        theirs: the foreign name; its fields come from `KeyMap.fields`.
        transposed: whether the foreign matrix is stored the other way round.
        part: (i, n): ours is the i-th of the n equal parts of the foreign tensor's rows.
        neighbours: whether a rotation abroad turns the rows 2i and 2i+1 of a head together, where ours turns
            i and i + D/2.
        per_head: whether the last dimension abroad is two, heads and their size.
        leading: how many dimensions of size 1 the foreign tensor has in front.
    """

    ours: str
    theirs: str
    transposed: bool = False
    part: tuple[int, int] = (0, 1)
    neighbours: bool = False
    per_head: bool = False
    leading: int = 0

    def shape(self, ours: tuple[int, ...], heads: int = 1) -> tuple[int, ...]:
        """The shape of the foreign tensor."""
        shape = ours[::-1] if self.transposed else ours
        if self.per_head:
            shape = (*shape[:-1], heads, shape[-1] // heads)
        shape = (1,) * self.leading + shape
        return (shape[0] * self.part[1], *shape[1:])

    def to_ours(self, tensor: Tensor, heads: int) -> Tensor:
        """Our parameter out of the foreign tensor."""
        i, n = self.part
        tensor = tensor.chunk(n)[i] if n > 1 else tensor
        tensor = tensor.reshape(tensor.shape[self.leading :])
        tensor = tensor.flatten(-2) if self.per_head else tensor
        tensor = tensor.t() if self.transposed else tensor
        return (_regrouped(tensor, heads, 2) if self.neighbours else tensor).contiguous()

    def to_theirs(self, tensor: Tensor, heads: int) -> Tensor:
        """The foreign tensor, or its part, out of our parameter."""
        if self.neighbours:
            tensor = _regrouped(tensor, heads, tensor.shape[0] // heads // 2)
        tensor = tensor.t() if self.transposed else tensor
        tensor = tensor.reshape(*tensor.shape[:-1], heads, -1) if self.per_head else tensor
        return tensor.reshape((1,) * self.leading + tensor.shape).contiguous()


def _regrouped(x: Tensor, heads: int, inner: int) -> Tensor:
    """The rows of each head, counted as (outer, inner), in the order (inner, outer)."""
    return x.view(heads, -1, inner, *x.shape[1:]).transpose(1, 2).reshape(x.shape)


@dataclass(frozen=True)
class KeyMap:
    """All rules of one foreign format.

    Attributes:
        rules: every parameter that a model can have, each of our names once.
        fields: (our block number, inner blocks of a group) → the fields of that block's foreign name.
    """

    rules: tuple[Rule, ...]
    fields: Callable[[int, int], Mapping[str, int | str]] = lambda block, inner: {"layer": block}

    def entries(self, names: Iterable[str], inner: int = 1) -> dict[str, Rule]:
        """For each of our `names` its rule, foreign name filled in; KeyError if the format has no such part.

        Args:
            inner: blocks in a group. The plan does not determine it: two groups of two are also four of one.
        """
        by_name = {rule.ours: rule for rule in self.rules}
        result: dict[str, Rule] = {}
        for name in names:
            found = BLOCK.match(name)
            rule = by_name[name] if name in by_name else by_name[BLOCK.sub(r"\1{n}.", name)]
            theirs = rule.theirs.format(**self.fields(int(found[2]), inner)) if found else rule.theirs
            result[name] = replace(rule, ours=name, theirs=theirs)
        return result


def dense(ours: str, theirs: str, weight: str = "weight", *, transposed: bool = False) -> tuple[Rule, Rule]:
    """The rules of a dense layer; `theirs` ends with the separator. Some formats call the weight kernel and
    transpose it."""
    return Rule(f"{ours}.weight", f"{theirs}{weight}", transposed), Rule(f"{ours}.bias", f"{theirs}bias")


def norm(ours: str, theirs: str, weight: str = "weight", bias: str = "bias") -> tuple[Rule, Rule]:
    """The rules of a LayerNorm; `theirs` ends with the separator."""
    return Rule(f"{ours}.weight", f"{theirs}{weight}"), Rule(f"{ours}.bias", f"{theirs}{bias}")


def check(
    entries: Mapping[str, Rule],
    expected: Mapping[str, Tensor],
    found: Mapping[str, tuple[int, ...]],
    where: object,
    heads: int = 1,
) -> None:
    """Compare foreign shapes with a model's before anything is read.

    Args:
        expected: our parameters (meta tensors do). found: shape of every foreign tensor, by foreign name.
        heads: of attention.

    Raises:
        ModelError: a parameter is missing or has another shape.
    """
    missing = [rule.theirs for rule in entries.values() if rule.theirs not in found]
    if missing and len(missing) == len(entries) and (front := _in_front(missing[0], found)):
        inside = [name for name in found if name.startswith(front)]
        beside = [name for name in found if not name.startswith(front)]
        others = f", and beside them {_some(beside)}" if beside else ""
        raise ModelError(
            f"has `{front}` in front of the names of its tensors: {_some(inside)}{others}",
            where=where,
            remedy="Save the model itself and not what holds it (`module.` is of DDP, `_orig_mod.` of "
            f"torch.compile): holder.{front}save_pretrained(FOLDER); or take `{front}` off the names: "
            "safetensors.torch.save_file({name.removeprefix"
            f"({front!r}): x for name, x in load_file(FILE).items() if name.startswith({front!r})}}, FILE)",
        )
    if missing and len(missing) == len(entries):
        raise ModelError(
            f"has none of the tensors of the model that its config.json describes, such as {missing[0]}; "
            f"it has {_some(list(found)) or 'none at all'}",
            where=where,
            remedy="Use the config.json that was saved with these weights; if the names alone differ, rename "
            "the tensors as transformers calls them",
        )
    if missing:
        raise ModelError(
            f"has no {_some(missing)}",
            where=where,
            remedy="The configuration and the weights do not belong together, or the file is incomplete",
        )
    for name, rule in entries.items():
        shape = rule.shape(tuple(expected[name].shape), heads)
        if found[rule.theirs] != shape:
            raise ModelError(
                f"{rule.theirs} has shape {list(found[rule.theirs])}, its configuration gives {list(shape)}",
                where=where,
                remedy="Use the config.json that was saved with these weights",
            )


def _in_front(name: str, found: Iterable[str]) -> str:
    """The prefix of a foreign name in a file of a wrapped model or of the backbone alone; empty if there is
    none."""
    base, _, rest = name.partition(".")
    held = (other.removesuffix(rest) for other in found if other.endswith(f".{rest}"))
    return next(held, "").removesuffix(f"{base}.")


def refuse_too_deep(plan: SharingPlan, tensors: int, where: object) -> None:
    """Refuse a configuration that names more blocks than the file has tensors, before thousands of them are
    made to be compared with it.

    Raises:
        ModelError: it does.
    """
    blocks = plan.num_attention_blocks + plan.num_feed_forward_blocks
    if blocks > tensors:
        raise ModelError(
            f"has {tensors:,} tensors, and its configuration names {plan.depth:,} layers",
            where=where,
            remedy="The configuration and the weights do not belong together, or the file is incomplete",
        )


def refuse_unexpected(odd: list[str], noun: str, where: object) -> None:
    """Refuse tensors of the encoder or of the heads of pretraining that the configuration has no place for.

    Args:
        odd: their foreign names. noun: what the format calls them, in the plural.

    Raises:
        ModelError: there is one.
    """
    if odd:
        more = f" and {len(odd) - 1} more {noun}" if len(odd) > 1 else ""
        raise ModelError(
            f"has {odd[0]}{more} that its configuration has no place for",
            where=where,
            remedy="Use the configuration that was saved with these weights",
        )


def to_ours(
    entries: Mapping[str, Rule], read: Callable[[str], Tensor], where: object, heads: int = 1
) -> dict[str, Tensor]:
    """Our parameters, float32 and finite, from foreign ones; `read` gives a foreign tensor by name.

    Args:
        heads: of attention, for rules that sort the rows of each.

    Raises:
        ModelError: a value that is not a number or infinite.
    """
    import torch

    state: dict[str, Tensor] = {}
    for name, rule in entries.items():
        # A copy, because the file is mapped into memory: unaligned, and a file that shrinks would kill the
        # process.
        tensor = read(rule.theirs).to(torch.float32, copy=True)
        # The sum is finite only if all values are (or huge ones cancel, hence the second look).
        if not torch.isfinite(tensor.sum()) and not bool(torch.isfinite(tensor).all()):
            raise ModelError(
                f"{rule.theirs} holds values that are not finite",
                where=where,
                remedy="The training that made it diverged; take an earlier checkpoint",
            )
        state[name] = rule.to_ours(tensor, heads)
    return state


def to_theirs(entries: Mapping[str, Rule], state: Mapping[str, Tensor], heads: int = 1) -> dict[str, Tensor]:
    """Foreign tensors, contiguous and on the CPU, from our parameters; the inverse of `to_ours`."""
    import torch

    parts: dict[str, dict[int, Tensor]] = {}
    for name, rule in entries.items():
        tensor = rule.to_theirs(state[name].detach().cpu(), heads)
        parts.setdefault(rule.theirs, {})[rule.part[0]] = tensor
    return {
        name: found[0] if len(found) == 1 else torch.cat([found[i] for i in sorted(found)])
        for name, found in parts.items()
    }


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + rest
