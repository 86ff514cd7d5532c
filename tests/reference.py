"""The slow, padded, obvious encoder that every fast path must equal.

It reads a model's parameters by name and computes in float32, one formula a line, one sequence row at a
time, with an additive mask and nothing fused. It shares no code with `albertine.model` except the container
of the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from albertine.model.config import EncoderConfig
from albertine.model.model import Model


def dense(p: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ p[f"{name}.weight"].T + p.get(f"{name}.bias", 0.0)


def layer_norm(p: dict[str, Tensor], name: str, x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * p[f"{name}.weight"] + p.get(
        f"{name}.bias", 0.0
    )


def activation(x: Tensor, name: str) -> Tensor:
    if name == "relu":
        return x * (x > 0)
    if name == "relu2":
        return x * x * (x > 0)
    if name == "gelu":
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def rotated(x_LD: Tensor, base: float) -> Tensor:
    """RoFormer's rotation, written as the multiplication of complex numbers that it is: the number i of a
    head is the real part of coordinate i, the number i + D/2 its imaginary part."""
    half = x_LD.shape[1] // 2
    angles = torch.tensor(
        [[place * base ** (-2 * i / x_LD.shape[1]) for i in range(half)] for place in range(len(x_LD))]
    )
    turned = torch.complex(x_LD[:, :half], x_LD[:, half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], 1)


def far(distance: int, config: EncoderConfig) -> Tensor:
    """φ of a distance: sines, then cosines."""
    clamp = config.clamp_positions or abs(distance)
    near = max(-clamp, min(clamp, distance))
    angles = [near / 10000 ** (2 * i / config.hidden_size) for i in range(config.hidden_size // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles])


def read(
    p: dict[str, Tensor], name: str, x_LH: Tensor, config: EncoderConfig, start_LH: Tensor | None
) -> list[Tensor]:
    """Queries, keys and values, each (L, H)."""
    found = [dense(p, f"{name}.{part}", x_LH) for part in ("query", "key", "value")]
    if config.input_injection and start_LH is not None:
        shares = torch.chunk(dense(p, "encoder.injection", start_LH), 3, 1)
        found = [y + share for y, share in zip(found, shares, strict=True)]
    return found


def relative_attention(
    p: dict[str, Tensor],
    name: str,
    x_LH: Tensor,
    mask_L: Tensor,
    types_L: Tensor,
    config: EncoderConfig,
    start_LH: Tensor | None = None,
    sign: int = 1,
) -> tuple[Tensor, Tensor]:
    """The output (L, H) and the weights (N, L, L), one pair of rows at a time (Yang et al. 2019, sections 2.4
    and 2.5; zihangdai/xlnet, `modeling.py`)."""
    size, length = config.head_size, len(x_LH)
    q, k, v = read(p, name, x_LH, config, start_LH)
    biases = f"{name}.biases" if config.relative_biases == "block" else "encoder.attention.0.biases"
    outputs, weights = [], []
    for head in range(config.num_attention_heads):
        columns = slice(head * size, (head + 1) * size)
        scores = torch.empty(length, length)
        for i in range(length):
            for j in range(length):
                r = p[f"{name}.position.weight"][columns] @ far(sign * (i - j), config)
                score = (q[i, columns] + p[f"{biases}.content"][head]) @ k[j, columns]
                score = score + (q[i, columns] + p[f"{biases}.position"][head]) @ r
                if config.type_vocab_size > 1:
                    differ = int(types_L[i] != types_L[j])
                    segment = p[f"{name}.segments"][differ, head]
                    score = score + (q[i, columns] + p[f"{biases}.segment"][head]) @ segment
                scores[i, j] = score / math.sqrt(size)
        scores = scores + (1.0 - mask_L.float()) * -10000.0
        weights.append(torch.softmax(scores, -1))
        outputs.append(weights[-1] @ v[:, columns])
    return dense(p, f"{name}.output", gated(p, name, x_LH, outputs, config)), torch.stack(weights)


def gated(
    p: dict[str, Tensor], name: str, x_LH: Tensor, heads: list[Tensor], config: EncoderConfig
) -> Tensor:
    """The outputs (L, D) of all heads side by side, (L, H), each times its gate."""
    if config.head_gate:
        gates_LN = 1 / (1 + torch.exp(-dense(p, f"{name}.gate", x_LH)))
        heads = [gates_LN[:, i : i + 1] * head for i, head in enumerate(heads)]
    return torch.cat(heads, 1)


def attention(
    p: dict[str, Tensor], name: str, x_LH: Tensor, mask_L: Tensor, config: EncoderConfig, start_LH: Tensor
) -> tuple[Tensor, Tensor]:
    """The output (L, H) and the weights (N, L, L)."""
    q, k, v = read(p, name, x_LH, config, start_LH)
    size = config.head_size
    outputs, weights = [], []
    for head in range(config.num_attention_heads):
        columns = slice(head * size, (head + 1) * size)
        q_LD, k_LD, scale = q[:, columns], k[:, columns], 1 / math.sqrt(size)
        if config.qk_norm:
            q_LD, k_LD = (y / (y.square().mean(-1, keepdim=True) + 1.2e-7).sqrt() for y in (q_LD, k_LD))
            scale = 0.12
        if config.positions == "rotary":
            q_LD, k_LD = rotated(q_LD, config.rotary_base), rotated(k_LD, config.rotary_base)
        scores = q_LD @ k_LD.T * scale
        scores = scores + (1.0 - mask_L.float()) * -10000.0
        weights.append(torch.softmax(scores, -1))
        outputs.append(weights[-1] @ v[:, columns])
    return dense(p, f"{name}.output", gated(p, name, x_LH, outputs, config)), torch.stack(weights)


def feed_forward(p: dict[str, Tensor], name: str, x: Tensor, config: EncoderConfig) -> Tensor:
    y = dense(p, f"{name}.intermediate", x)
    if config.feed_forward == "gated":
        y, gate = y[:, : config.intermediate_size], y[:, config.intermediate_size :]
        return dense(p, f"{name}.output", activation(y, config.hidden_act) * gate)
    return dense(p, f"{name}.output", activation(y, config.hidden_act))


def encode(
    model: Model, ids_BL: Tensor, mask_BL: Tensor, types_BL: Tensor, layers: Sequence[int] | None = None
) -> list[Tensor]:
    """The embeddings and every depth's output, each (B, L, H), the last one finally normalised in a pre-norm
    encoder; dropout is not modelled. `layers` are those to compute, one after another, by default all."""
    return encode_with_weights(model, ids_BL, mask_BL, types_BL, layers)[0]


def attentions(model: Model, ids_BL: Tensor, mask_BL: Tensor, types_BL: Tensor) -> list[Tensor]:
    """The attention weights of every layer, each (B, N, L, L), whatever queries at padding have."""
    return encode_with_weights(model, ids_BL, mask_BL, types_BL)[1]


def encode_with_weights(
    model: Model, ids_BL: Tensor, mask_BL: Tensor, types_BL: Tensor, layers: Sequence[int] | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """`encode` and `attentions`."""
    layers = range(model.config.plan.depth) if layers is None else layers
    rows = [_encode_row(model, *row, layers) for row in zip(ids_BL, mask_BL, types_BL, strict=True)]
    states, weights = zip(*rows, strict=True)
    return [torch.stack(x) for x in zip(*states, strict=True)], [
        torch.stack(x) for x in zip(*weights, strict=True)
    ]


def _embed(p: dict[str, Tensor], config: EncoderConfig, ids_L: Tensor, types_L: Tensor) -> Tensor:
    e, eps = "encoder.embeddings", config.layer_norm_eps
    x = p[f"{e}.word.weight"][ids_L]
    if config.type_vocab_size and config.positions != "relative":
        x = x + p[f"{e}.token_type.weight"][types_L]
    if config.positions == "learned":
        x = x + p[f"{e}.position.weight"][: len(ids_L)]
    if config.norm == "post" and config.embedding_norm:
        x = layer_norm(p, f"{e}.layer_norm", x, eps)
    if config.has_mapping:
        x = dense(p, f"{e}.mapping", x)
    return (
        x if config.norm == "post" or not config.embedding_norm else layer_norm(p, f"{e}.layer_norm", x, eps)
    )


def fixed_point(model: Model, ids_L: Tensor, types_L: Tensor, steps: int) -> Tensor:
    """Of one sequence (L, H): its one block again and again, from zero."""
    p, config = dict(model.named_parameters()), model.config
    start = _embed(p, config, ids_L, types_L)
    x, real = torch.zeros_like(start), torch.ones_like(ids_L)
    for _ in range(steps):
        for part in ("attention", "feed_forward"):
            x, _ = _sublayer(p, config, 0, part, f"encoder.{part}.0", x, real, types_L, start)
    return x


def _encode_row(
    model: Model, ids_L: Tensor, mask_L: Tensor, types_L: Tensor, layers: Sequence[int]
) -> tuple[list[Tensor], list[Tensor]]:
    """States (L, H) and attention weights (N, L, L) of one sequence."""
    p, config = dict(model.named_parameters()), model.config
    x = start = _embed(p, config, ids_L, types_L)
    states, chances, weights = [x], [], []
    for d in layers:
        x = x + signal(p, config, "step", config.step_signal, d)
        x = x + torch.stack([signal(p, config, "position", config.position_signal, i) for i in range(len(x))])
        if config.halting != "none":
            chances.append([chance(p, row) for row in x])
        if "injection" in config.plan.own and d > 0:
            x = x + p[f"encoder.own.{d}.injection"] * start
        plan = config.plan
        for part, block in (("attention", plan.attention[d]), ("feed_forward", plan.feed_forward[d])):
            name = f"encoder.{part}.{block}"
            x, own_NLL = _sublayer(p, config, d, part, name, x, mask_L, types_L, start)
            weights += [] if own_NLL is None else [own_NLL]
        states.append(x)
    if config.halting != "none":
        states = [start, *(halted(config, states, chances, most)[0] for most in range(1, len(states)))]
    if config.norm == "pre":
        states[-1] = layer_norm(p, "encoder.final_norm", states[-1], config.layer_norm_eps)
    return states, weights


def signal(p: dict[str, Tensor], config: EncoderConfig, name: str, kind: str, row: int) -> Tensor:
    """What the Universal Transformer adds for place or step `row`, (H,)."""
    if kind == "learned":
        return p[f"encoder.signals.{name}"][row]
    out = torch.zeros(config.hidden_size)
    for j in range(config.hidden_size if kind == "sinusoid" else 0):
        angle = row / 10000 ** (j // 2 * 2 / config.hidden_size)
        out[j] = math.cos(angle) if j % 2 else math.sin(angle)
    return out


def chance(p: dict[str, Tensor], x_H: Tensor) -> Tensor:
    """The probability that a position halts."""
    return 1 / (1 + torch.exp(-(p["encoder.halting.weight"] @ x_H + p["encoder.halting.bias"]))).squeeze()


def halted(
    config: EncoderConfig, states: list[Tensor], chances: list[list[Tensor]], most: int
) -> tuple[Tensor, list[int], list[Tensor], list[float]]:
    """Adaptive computation time of one sequence, one position and one step after another: the reference
    code's state machine.

    Args:
        states: the embeddings and every step's output, (L, H). chances: p of every step and position.
        most: how many steps there are at most.

    Returns:
        The output (L, H), and of every position its steps, its remainder and the sum of its weights.
    """
    rows, steps, remainders, weights = [], [], [], []
    for i in range(len(states[0])):
        h, y, left, total, count = 0.0, torch.zeros_like(states[0][i]), torch.zeros(()), 0.0, 0
        for t in range(most):
            p = chances[t][i]
            if h >= 1:
                break
            count += 1
            limit = t == most - 1 and config.halting_limit == "remainder"
            if float(h + p) > 1 - config.halting_epsilon or limit:
                w = left = 1 - torch.as_tensor(h)
                h = 1.0
            else:
                w = p
                h = h + p
            total += float(w)
            y = w * states[t + 1][i] + (y if config.halting == "accumulated" else (1 - w) * y)
        rows.append(y)
        steps.append(count)
        remainders.append(left)
        weights.append(total)
    return torch.stack(rows), steps, remainders, weights


def _sublayer(
    p: dict[str, Tensor],
    config: EncoderConfig,
    d: int,
    part: str,
    name: str,
    x: Tensor,
    mask_L: Tensor,
    types_L: Tensor,
    start: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """The output (L, H), and of attention its weights."""
    own, eps = f"encoder.own.{d}.{part}", config.layer_norm_eps
    norm = f"{own}.layer_norm" if "norms" in config.plan.own else f"{name}.layer_norm"
    read_LH, weights = x, None
    normed_before = part == "attention" and d == 0 and config.embedding_norm
    if config.norm == "pre" and not normed_before:
        read_LH = layer_norm(p, norm, x, eps)
    if part == "feed_forward":
        f = feed_forward(p, name, read_LH, config)
    elif config.positions == "relative":
        f, weights = relative_attention(p, name, read_LH, mask_L, types_L, config, start)
    else:
        f, weights = attention(p, name, read_LH, mask_L, config, start)
    if config.plan.low_rank:
        f = f + read_LH @ p[f"{own}.down"].T @ p[f"{own}.up"].T
    if "residuals" in config.plan.own:
        f = f * p[f"{own}.scale"]
    x = x + config.residual_factor * f
    return x if config.norm == "pre" else layer_norm(p, norm, x, eps), weights


def mlm_logits(model: Model, hidden: Tensor) -> Tensor:
    """(…, H) to (…, V)."""
    p, config = dict(model.named_parameters()), model.config
    x = activation(dense(p, "mlm.dense", hidden), config.hidden_act)
    x = layer_norm(p, "mlm.layer_norm", x, config.layer_norm_eps)
    if config.output == "own":
        return x @ p["mlm.output"].T + p["mlm.bias"]
    if config.norm == "pre" and config.has_mapping:
        x = x @ p["encoder.embeddings.mapping.weight"]
    return x @ p["encoder.embeddings.word.weight"].T + p["mlm.bias"]


def sentence_logits(model: Model, hidden_BLH: Tensor) -> Tensor:
    """(B, L, H) to (B, 2)."""
    p = dict(model.named_parameters())
    return dense(p, "sentence.classifier", torch.tanh(dense(p, "pooler.dense", hidden_BLH[:, 0])))


def unilm_mask(types_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """UniLM's mask (B, L, L): row i sees row j where the running sum of segment ids up to j is not larger
    than that up to i (bert4keras, `models.py`). `encode` takes it in place of the mask of real tokens."""
    rows = []
    for types, real in zip(types_BL.tolist(), mask_BL.tolist(), strict=True):
        sums = [sum(types[: i + 1]) for i in range(len(types))]
        rows.append(
            [
                [int(sums[j] <= sums[i] and bool(real[j])) for j in range(len(types))]
                for i in range(len(types))
            ]
        )
    return torch.tensor(rows)
