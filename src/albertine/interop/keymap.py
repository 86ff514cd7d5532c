"""Foreign parameter names as data, and the one driver that applies them in both directions without loss."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from albertine.errors import ModelError

BLOCK = re.compile(r"^(encoder\.(?:attention|feed_forward)\.)(\d+)\.")
SHOWN = 4


@dataclass(frozen=True)
class Rule:
    """One parameter, or one per block.

    Attributes:
        ours: our name; the number of a block is written `{n}`.
        theirs: the foreign name; its fields come from `KeyMap.fields`.
        transposed: whether the foreign matrix is stored the other way round.
    """

    ours: str
    theirs: str
    transposed: bool = False


@dataclass(frozen=True)
class KeyMap:
    """All rules of one foreign format.

    Attributes:
        rules: every parameter that a model can have, each of our names once.
        fields: (our block number, inner blocks of a group) → the numbers in the foreign name of that block.
    """

    rules: tuple[Rule, ...]
    fields: Callable[[int, int], dict[str, int]]

    def entries(self, names: Iterable[str], inner: int = 1) -> dict[str, Rule]:
        """For each of our `names` its rule, foreign name filled in; KeyError if the format has no such part.

        Args:
            inner: blocks in a group. The plan alone does not tell: two groups of two are also four of one.
        """
        by_name = {rule.ours: rule for rule in self.rules}
        result: dict[str, Rule] = {}
        for name in names:
            found = BLOCK.match(name)
            rule = by_name[BLOCK.sub(r"\1{n}.", name)]
            theirs = rule.theirs.format(**self.fields(int(found[2]), inner)) if found else rule.theirs
            result[name] = Rule(name, theirs, rule.transposed)
        return result


def dense(ours: str, theirs: str, weight: str = "weight", *, transposed: bool = False) -> tuple[Rule, Rule]:
    """The rules of a dense layer; `theirs` ends with the separator. Some formats say kernel, and transpose
    it."""
    return Rule(f"{ours}.weight", f"{theirs}{weight}", transposed), Rule(f"{ours}.bias", f"{theirs}bias")


def norm(ours: str, theirs: str, weight: str = "weight", bias: str = "bias") -> tuple[Rule, Rule]:
    """The rules of a LayerNorm; `theirs` ends with the separator."""
    return Rule(f"{ours}.weight", f"{theirs}{weight}"), Rule(f"{ours}.bias", f"{theirs}{bias}")


def check(
    entries: Mapping[str, Rule],
    expected: Mapping[str, Tensor],
    found: Mapping[str, tuple[int, ...]],
    where: object,
) -> None:
    """Compare foreign shapes with a model's before anything is read.

    Args:
        expected: our parameters (meta tensors do). found: shape of every foreign tensor, by foreign name.

    Raises:
        ModelError: a parameter is missing or has another shape.
    """
    missing = [rule.theirs for rule in entries.values() if rule.theirs not in found]
    if missing:
        raise ModelError(
            f"has no {_some(missing)}",
            where=where,
            remedy="The configuration and the weights do not belong together, or the file is incomplete",
        )
    for name, rule in entries.items():
        shape = tuple(expected[name].shape)
        shape = shape[::-1] if rule.transposed else shape
        if found[rule.theirs] != shape:
            raise ModelError(
                f"{rule.theirs} has shape {list(found[rule.theirs])}, its configuration says {list(shape)}",
                where=where,
                remedy="Use the config.json that was saved with these weights",
            )


def to_ours(entries: Mapping[str, Rule], read: Callable[[str], Tensor], where: object) -> dict[str, Tensor]:
    """Our parameters, float32 and finite, from foreign ones; `read` gives a foreign tensor by name.

    Raises:
        ModelError: a value that is not a number or infinite.
    """
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
        state[name] = tensor.t().contiguous() if rule.transposed else tensor.contiguous()
    return state


def to_theirs(entries: Mapping[str, Rule], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Foreign tensors, contiguous and on the CPU, from our parameters; the inverse of `to_ours`."""
    result: dict[str, Tensor] = {}
    for name, rule in entries.items():
        tensor = state[name].detach().cpu()
        result[rule.theirs] = tensor.t().contiguous() if rule.transposed else tensor.contiguous()
    return result


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + rest
