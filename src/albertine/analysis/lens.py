"""The masked-LM head applied to the states of every layer, and of layers beyond the plan where all layers are
one block (logit lens, nostalgebraist 2020).

State 0 is the embeddings, state d the output after d layers. The head reads the last state of a pre-norm
encoder after its final norm, so here the final norm is applied to the output of every layer, and not to the
embeddings; a post-norm encoder has none. Every state is what `encoder(depth=d)` gives to the head: the output
of a model with fewer layers, or converted to more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from albertine.analysis.one_text import model_input
from albertine.core.batch import Packed, pack
from albertine.core.precision import without_autocast
from albertine.core.token_batches import batch_by_tokens
from albertine.errors import DataError, NotFinite, SettingsError, check_integer
from albertine.inference.fill_mask import Guess
from albertine.inference.pretraining_heads import check_mlm_head
from albertine.interop.huggingface.folders import named_model
from albertine.model.loop import EncoderOutput, LayerFunction, LayerLoop
from albertine.model.model import Model, evaluating
from albertine.model.rows import Rows, SelectedRows
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.base import Tokenizer

BEYOND = 4
"""How often the layers of its plan a model that repeats one block is computed at most."""
ROWS_AT_ONCE = 1024
"""Rows whose logits over the vocabulary are in memory at once."""


@dataclass(frozen=True)
class LensPosition:
    """The guesses at one position of the text.

    Attributes:
        place: its index among the tokens.
        answer: the text's own token, which was masked; None where the text has [MASK] itself.
        guesses: for each depth the most probable tokens, best first.
        probability: of `answer` at each depth; None without one.
        stable: first and last of the depths around that of the model at which the best token is the model's
            answer without a break.
    """

    place: int
    answer: str | None
    guesses: list[list[Guess]]
    probability: list[float] | None
    stable: tuple[int, int]


@dataclass(frozen=True)
class Lens:
    """Guesses at some positions of a text over depth.

    Attributes:
        tokens: of the text, special ones included, as in the vocabulary.
        depths: at which the head was applied, ascending.
        layers: of the model; larger depths repeat its block.
        final_norm: whether the final norm of a pre-norm encoder was applied to the output of every layer.
        positions: in the order of the text.
    """

    tokens: list[str]
    depths: list[int]
    layers: int
    final_norm: bool
    positions: list[LensPosition]

    @property
    def right(self) -> list[float] | None:
        """Share of the positions whose best token is the text's own, at each depth; None where it is not
        known."""
        known = [p for p in self.positions if p.answer is not None]
        if not known:
            return None
        each = range(len(self.depths))
        return [sum(p.guesses[i][0].token == p.answer for p in known) / len(known) for i in each]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "tokens": self.tokens,
            "depths": self.depths,
            "layers": self.layers,
            "final_norm": self.final_norm,
            "right": self.right,
            "positions": [
                {
                    "place": p.place,
                    "answer": p.answer,
                    "probability": p.probability,
                    "stable_from": p.stable[0],
                    "stable_to": p.stable[1],
                    "guesses": [
                        [{"token": g.token, "probability": g.probability} for g in at_depth]
                        for at_depth in p.guesses
                    ],
                }
                for p in self.positions
            ],
        }


def max_depth(model: Model) -> int:
    """The largest depth of a lens: `BEYOND` times the layers where one block without a layer number is
    repeated, and no position halts; else the layers of the plan."""
    config, layers = model.config, model.config.plan.depth
    repeats = config.plan == SharingPlan.shared(layers) and config.step_signal == "none" and not config.halts
    # The only layer of such an encoder does not normalise its input, as all later ones do.
    single = layers == 1 and config.norm == "pre" and config.embedding_norm
    return BEYOND * layers if repeats and not single else layers


def default_depths(model: Model) -> list[int]:
    """Depths of a lens that are not given: up to the layers of the plan, or to twice as many where the model
    has more depths."""
    return list(range(min(2 * model.config.plan.depth, max_depth(model)) + 1))


def lens_of_named(
    what: str | Path,
    text: str,
    *,
    depths: Sequence[int] | None = None,
    top: int = 5,
    places: Sequence[int] | None = None,
) -> Lens:
    """`lens` of a named model.

    Raises:
        AlbertineError: there is no such model, it has no masked-LM head, or the text cannot be read.
    """
    model, tokenizer = named_model(what)
    check_mlm_head(model, what)
    return lens(model, tokenizer, text, depths=depths, top=top, places=places)


@without_autocast
def lens(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    *,
    depths: Sequence[int] | None = None,
    top: int = 5,
    places: Sequence[int] | None = None,
) -> Lens:
    """The most probable tokens at masked positions of a text, at every depth. One pass computes all depths.

    In a text without [MASK] every token is masked alone, each in a copy of the text, so that the right answer
    is known. With an encoder that solves for a fixed point, depth d is d evaluations of its block from the
    start; with halting, at most d steps.

    Args:
        depths: from 0, the embeddings, to `max_depth`. Default: `default_depths`.
        top: number of tokens.
        places: indices of tokens, [CLS] at 0, to look at instead; those that are not [MASK] are masked alone.

    Raises:
        ModelError: the model has no masked-LM head. DataError: there is no text, or it is longer than the
            model. SettingsError: a depth or place is out of range. NotFinite: a logit is not finite.
    """
    check_mlm_head(model, "the model")
    check_integer("top", top, 1)
    layers, most = model.config.plan.depth, max_depth(model)
    chosen = default_depths(model) if depths is None else sorted({*depths})
    _check_depths(chosen, layers, most)
    ids, segments = model_input(model, tokenizer, text)
    rows = _masked_rows(ids, tokenizer, places)
    found = []
    with evaluating(model), torch.inference_mode():
        for part in batch_by_tokens(range(len(rows)), [len(ids)] * len(rows), model.tokens_per_pass):
            some = [rows[i] for i in part]
            index = [i * len(ids) + place for i, row in enumerate(some) for place in row.places]
            packed = pack([row.ids for row in some], [segments] * len(some))
            at = [place for row in some for place in row.places]
            answers = [None if ids[place] in tokenizer.special_ids else ids[place] for place in at]
            tables = _read(model, tokenizer, packed, index, answers, chosen, top)
            found += [
                _position(*one, tokenizer, chosen, layers) for one in zip(at, answers, tables, strict=True)
            ]
    norm = model.config.norm == "pre"
    tokens = [tokenizer.id_to_piece(token) for token in ids]
    return Lens(tokens, chosen, layers, norm, sorted(found, key=lambda p: p.place))


class _Row(NamedTuple):
    """A copy of the text with masks.

    Attributes:
        places: of the masks whose tokens are predicted.
    """

    ids: list[int]
    places: list[int]


def _masked_rows(ids: list[int], tokenizer: Tokenizer, places: Sequence[int] | None) -> list[_Row]:
    """
    Raises:
        DataError: there is no token to predict. SettingsError: a place is out of range.
    """
    masks = [place for place, token in enumerate(ids) if token == tokenizer.mask_id]
    if places is None:
        known = [place for place, token in enumerate(ids) if token not in tokenizer.special_ids]
        places = masks or known
        if not places:
            raise DataError("no token of the text is in the vocabulary", remedy="Give another text")
    for place in places:
        if not isinstance(place, Integral) or not 0 <= place < len(ids):
            raise SettingsError(
                f"there is no token {place!r:.20}: those of the text are 0 to {len(ids) - 1}",
                where="places",
            )
    together = [place for place in masks if place in places]
    alone = sorted({*places} - {*masks})
    rows = [_Row([*ids[:p], tokenizer.mask_id, *ids[p + 1 :]], [p]) for p in alone]
    return [_Row(ids, together), *rows] if together else rows


def _check_depths(depths: Sequence[int], layers: int, most: int) -> None:
    """
    Raises:
        SettingsError: there are none, or one is out of range.
    """
    if not depths:
        raise SettingsError("there is no depth to look at", remedy=f"Give some of 0 to {most}")
    for depth in depths:
        if isinstance(depth, Integral) and 0 <= depth <= most:
            continue
        why = "" if most > layers else ", whose layers cannot be repeated"
        raise SettingsError(
            f"depth {depth!r:.20} is outside 0 to {most}",
            where="depths",
            remedy=f"The model has {layers} layers{why}",
        )


class _Table(NamedTuple):
    """Of one position at every depth: token ids and their probabilities, best first, and the probability of
    the right token."""

    ids: list[list[int]]
    probabilities: list[list[float]]
    right: list[float]


def _read(
    model: Model,
    tokenizer: Tokenizer,
    packed: Packed,
    index: list[int],
    answers: list[int | None],
    depths: list[int],
    top: int,
) -> list[_Table]:
    """A table for each of the rows `index` of a batch.

    Raises:
        NotFinite: a logit is not finite.
    """
    assert model.mlm is not None
    packed, encoder = packed.to(model.device), model.encoder
    rows = torch.tensor(index, device=model.device)
    right = torch.tensor([0 if token is None else token for token in answers], device=model.device)[:, None]
    special = torch.tensor(sorted(tokenizer.special_ids), device=model.device)
    top = min(top, tokenizer.vocab_size - len(special))
    tables = [_Table([], [], []) for _ in index]
    with encoder.forward_pass() as ops:
        loop = None if model.config.halts else _Repeated(model)
        states = encoder.encode(ops, packed, depths[-1], None, True, loop=loop).hidden_states
        assert states is not None
        for depth in depths:
            state_PH = states[depth].index_select(0, rows)
            if encoder.final_norm is not None and 0 < depth < depths[-1]:
                state_PH = encoder.final_norm(state_PH)  # the last one is normed already, embeddings never
            parts = torch.split(state_PH, ROWS_AT_ONCE)
            logits_PV = torch.cat([model.mlm(some, encoder.embeddings).float() for some in parts])
            if not bool(logits_PV.isfinite().all()):
                raise NotFinite
            logits_PV = logits_PV[:, : tokenizer.vocab_size].index_fill(1, special, -math.inf)
            probabilities_PV = logits_PV.softmax(1)
            best = probabilities_PV.topk(top, 1)
            known = probabilities_PV.gather(1, right)[:, 0]
            each = zip(tables, best.indices.tolist(), best.values.tolist(), known.tolist(), strict=True)
            for table, ids, values, probability in each:
                table.ids.append(ids)
                table.probabilities.append(values)
                table.right.append(probability)
    return tables


class _Repeated(LayerLoop):
    """The ordinary loop, in which layers beyond the plan are computed as its last one."""

    def __init__(self, model: Model) -> None:
        self.last = model.config.plan.depth - 1
        self.from_zero = model.config.zero_start

    def run(
        self,
        layer: LayerFunction,
        x_TH: Tensor,
        rows: Rows,
        depth: int,
        selected: SelectedRows | None,
        all_depths: bool,
    ) -> EncoderOutput:
        def repeated(d: int, *given: Any) -> Tensor:
            return layer(min(d, self.last), *given)

        start_TH = torch.zeros_like(x_TH) if self.from_zero else x_TH
        return super().run(repeated, start_TH, rows, depth, selected, all_depths)


def _position(
    place: int, answer: int | None, table: _Table, tokenizer: Tokenizer, depths: list[int], layers: int
) -> LensPosition:
    guesses = [
        [Guess(tokenizer.id_to_piece(token), token, p) for token, p in zip(*one, strict=True)]
        for one in zip(table.ids, table.probabilities, strict=True)
    ]
    best = [ids[0] for ids in table.ids]
    first = last = max((i for i, d in enumerate(depths) if d <= layers), default=0)
    own = best[first]
    while first > 0 and best[first - 1] == own:
        first -= 1
    while last + 1 < len(best) and best[last + 1] == own:
        last += 1
    return LensPosition(
        place,
        None if answer is None else tokenizer.id_to_piece(answer),
        guesses,
        None if answer is None else table.right,
        (depths[first], depths[last]),
    )
