"""Our causal language model with memory beside Transformer-XL's own code, from equal weights.

    python -m benchmarks.transformer_xl CODE --goldens tests/model/transformer_xl.npz
    python -m benchmarks.transformer_xl CODE --train corpora/en --save
    python -m benchmarks.transformer_xl CODE --speed --save

CODE is the folder `pytorch` of a checkout of github.com/kimiyoung/transformer-xl (44781ed; Apache 2.0).
`--goldens` stores what that code computes for three segments in a row, in float64, under random weights,
which is what tests/model/test_transformer_xl.py compares with. `--train` trains both on the text of a corpus,
the same segments in the same order without dropout, and prints both losses. `--speed` times a training step
of each, in turns.

Their embeddings are multiplied by √H, of which the output layer knows nothing; here that factor is 1 in both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.bench.interleaved import compete
from albertine.core.batch import pack
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.segment_memory import Memory
from albertine.model.sharing import SharingPlan
from albertine.model.two_streams import Segments, predict_segments
from albertine.model.visibility import causal
from benchmarks.keep import keep

GOLDENS: list[dict[str, Any]] = [
    {"memory": 6, "clamp": 0, "same": False},
    {"memory": 6, "clamp": 3, "same": False},
    {"memory": 6, "clamp": 0, "same": True},
    {"memory": 3, "clamp": 2, "same": True},
    {"memory": 20, "clamp": 0, "same": True},
    {"memory": 0, "clamp": 0, "same": False},
    {"memory": 6, "clamp": 3, "same": True, "pre": True},
    {"memory": 3, "clamp": 0, "same": False, "pre": True},
]
SMALL = {"vocab": 23, "hidden": 12, "heads": 3, "inner": 20, "depth": 3, "segment": 5, "batch": 2}


def theirs_of(
    code: Path, shape: dict[str, int], memory: int, clamp: int = 0, same: bool = False, pre: bool = False
) -> nn.Module:
    """Their model. torch must seem to have CUDA, which a file of theirs checks on import, and masks are
    bool since."""
    torch.version.cuda = "12.1"  # type: ignore[assignment]
    sys.path[:0] = [str(code), str(code / "utils")]
    torch.Tensor.byte = torch.Tensor.bool  # type: ignore[method-assign]
    from mem_transformer import MemTransformerLM  # type: ignore[import-not-found]

    model: nn.Module = MemTransformerLM(
        shape["vocab"],
        shape["depth"],
        shape["heads"],
        shape["hidden"],
        shape["hidden"] // shape["heads"],
        shape["inner"],
        0.0,
        0.0,
        tgt_len=shape["segment"],
        ext_len=0,
        mem_len=memory,
        clamp_len=clamp or -1,
        same_length=same,
        pre_lnorm=pre,
        tie_weight=True,
    )
    model.word_emb.emb_scale = 1  # type: ignore[union-attr,assignment]
    return model


def fill(model: nn.Module, sigma: float = 0.1) -> None:
    """No parameter at a trivial value."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = sigma * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise + (1.0 if name.endswith("layer_norm.weight") else 0.0))


def config_of(shape: dict[str, int], clamp: int = 0, pre: bool = False) -> EncoderConfig:
    """Our encoder of that shape: relu, tied biases, one block a depth."""
    return EncoderConfig(
        vocab_size=shape["vocab"],
        embedding_size=shape["hidden"],
        hidden_size=shape["hidden"],
        num_attention_heads=shape["heads"],
        intermediate_size=shape["inner"],
        plan=SharingPlan.unshared(shape["depth"]),
        hidden_act="relu",
        type_vocab_size=0,
        layer_norm_eps=1e-5,
        positions="relative",
        clamp_positions=clamp,
        relative_biases="tied",
        embedding_norm=False,
        norm="pre" if pre else "post",
    )


def state_of(weights: dict[str, Tensor], depth: int) -> dict[str, Tensor]:
    """Their weights by our names; the output layer's bias is `lm.bias`."""
    w = weights
    state = {
        "encoder.embeddings.word.weight": w["word_emb.emb_layers.0.weight"],
        "encoder.attention.0.biases.content": w["r_w_bias"],
        "encoder.attention.0.biases.position": w["r_r_bias"],
        "lm.bias": w["crit.out_layers.0.bias"],
    }
    for d in range(depth):
        layer, a, f = f"layers.{d}", f"encoder.attention.{d}", f"encoder.feed_forward.{d}"
        q, k, v = w[f"{layer}.dec_attn.qkv_net.weight"].chunk(3)
        state |= {f"{a}.query.weight": q, f"{a}.key.weight": k, f"{a}.value.weight": v}
        state[f"{a}.position.weight"] = w[f"{layer}.dec_attn.r_net.weight"]
        state[f"{a}.output.weight"] = w[f"{layer}.dec_attn.o_net.weight"]
        for kind in ("weight", "bias"):
            state[f"{a}.layer_norm.{kind}"] = w[f"{layer}.dec_attn.layer_norm.{kind}"]
            state[f"{f}.intermediate.{kind}"] = w[f"{layer}.pos_ff.CoreNet.0.{kind}"]
            state[f"{f}.output.{kind}"] = w[f"{layer}.pos_ff.CoreNet.3.{kind}"]
            state[f"{f}.layer_norm.{kind}"] = w[f"{layer}.pos_ff.layer_norm.{kind}"]
    return state


def ours_of(weights: dict[str, Tensor], shape: dict[str, int], clamp: int = 0, pre: bool = False) -> Model:
    """Our model with their weights; with `pre` without the norm behind the last depth, which they do not
    have."""
    model = Model(config_of(shape, clamp, pre), {"lm"})
    if pre:
        model.encoder.final_norm = None
    odd = model.load_state_dict(state_of(weights, shape["depth"]), strict=False)
    assert odd.missing_keys == ["lm.query"] and not odd.unexpected_keys, odd
    return model


def step_of(model: Model, ids_BL: Tensor, memory: Memory | None, keep: int, same: bool = False) -> Any:
    """Logits (B·L, V) of a segment, and the next memory."""
    batch = pack(list(ids_BL.numpy()))
    segments = Segments(
        batch,
        visible=causal(batch.lengths, batch.input_ids),
        reach=keep - 1 if same else None,
    )
    return predict_segments(model, segments, memory, keep=keep)


def goldens(code: Path, out: Path) -> None:
    """What their code computes, float64: hidden states of three segments, and all weights."""
    found: dict[str, np.ndarray] = {}
    rng = np.random.default_rng(0)
    ids = rng.integers(0, SMALL["vocab"], (3, SMALL["segment"], SMALL["batch"]))
    found["ids"] = ids
    for number, case in enumerate(GOLDENS):
        memory_and_clamp = int(case["memory"]), int(case["clamp"])
        model = theirs_of(code, SMALL, *memory_and_clamp, bool(case["same"]), case.get("pre", False)).double()
        fill(model)
        model.eval()
        memory: Any = model.init_mems() if case["memory"] else None  # type: ignore[operator]
        for part in range(3):
            with torch.no_grad():
                hidden, memory = model._forward(torch.from_numpy(ids[part]), memory or None)  # type: ignore[operator]
            found[f"{number}/{part}"] = hidden.transpose(0, 1).numpy()
        if number == 0:
            found |= {f"w/{name}": p.detach().numpy() for name, p in model.state_dict().items()}
    np.savez_compressed(out, **found)
    print(f"written: {out}")


def both(code: Path, shape: dict[str, int], memory: int) -> tuple[nn.Module, Model]:
    theirs = theirs_of(code, shape, memory)
    fill(theirs, 0.02)
    return theirs, ours_of(dict(theirs.state_dict()), shape)


def train(code: Path, corpus: Path, steps: int) -> dict[str, Any]:
    """Both from the same weights over the same segments by Adam, loss in nats at every step."""
    from albertine.corpus.reader import Corpus

    text = Corpus(corpus)
    shape = {**SMALL, "hidden": 64, "heads": 4, "inner": 256, "segment": 32, "batch": 8}
    shape["vocab"] = text.tokenizer().vocab_size
    need = shape["batch"] * (steps * shape["segment"] + 1)
    tokens = text.span(0, text.num_sentences)[0][:need].astype(np.int64)
    ids = torch.from_numpy(tokens).view(shape["batch"], -1)
    theirs, ours = both(code, shape, 32)
    optimizers = [torch.optim.Adam(m.parameters(), 1e-3) for m in (theirs, ours)]
    their_memory: Any = theirs.init_mems()  # type: ignore[operator]
    our_memory: Memory | None = None
    losses: list[tuple[float, float]] = []
    for step in range(steps):
        first = step * shape["segment"]
        x, y = (ids[:, first + i : first + i + shape["segment"]] for i in (0, 1))
        loss, *their_memory = theirs(x.T.contiguous(), y.T.contiguous(), *their_memory)
        logits, our_memory = step_of(ours, x, our_memory, 32)
        mine = F.cross_entropy(logits, y.flatten())
        for value, optimizer in zip((loss.mean(), mine), optimizers, strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        losses.append((float(loss.mean()), float(mine)))
    apart = [abs(b - a) / a for a, b in losses]
    print(f"largest relative difference of the loss over {steps} steps: {max(apart):.1e}")
    last = np.mean(losses[-20:], 0) / np.log(2)
    print(f"last 20 steps: {last[0]:.3f} bits a token theirs, {last[1]:.3f} ours")
    return {"steps": steps, "largest difference": max(apart), "bits": last.tolist(), "losses": losses}


def speed(code: Path, rounds: int, threads: int) -> dict[str, Any]:
    """A training step of the published width 410 (wikitext-103, base) in fewer depths, memory as long as the
    segment."""
    shape = {"vocab": 8000, "hidden": 410, "heads": 10, "inner": 2100, "depth": 4, "segment": 150, "batch": 8}
    theirs, ours = both(code, shape, 150)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, shape["vocab"], (shape["batch"], 151), generator=generator)
    x, y = ids[:, :-1], ids[:, 1:]
    full = [torch.randn(150, shape["batch"], shape["hidden"]) for _ in range(shape["depth"] + 1)]
    memory = Memory(
        tuple(m.transpose(0, 1).flatten(0, 1).contiguous() for m in full[:-1]), (150,) * shape["batch"]
    )

    def their_step() -> float:
        loss, *_ = theirs(x.T.contiguous(), y.T.contiguous(), *full)
        loss.mean().backward()
        theirs.zero_grad(set_to_none=True)
        return float(loss.mean())

    def our_step(precision: Any) -> Callable[[], float]:
        def run() -> float:
            ours.precision = precision
            logits, _ = step_of(ours, x, memory, 150)
            loss = F.cross_entropy(logits.float(), y.flatten())
            loss.backward()
            ours.zero_grad(set_to_none=True)
            return float(loss)

        return run

    ways: dict[str, Callable[[], float]] = {
        "transformer-xl float32": their_step,
        "albertine float32": our_step("float32"),
        "albertine bfloat16": our_step("bfloat16"),
    }
    contest = compete(ways, rounds, threads, print)
    pairs = [(way, "transformer-xl float32") for way in list(ways)[1:]]
    record = {**contest.as_dict(), "ratios": contest.ratios(pairs), "losses": dict(contest.outputs)}
    return {**record, "threads": threads}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("code", type=Path, metavar="CODE")
    parser.add_argument("--goldens", type=Path, metavar="FILE")
    parser.add_argument("--train", type=Path, metavar="CORPUS")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    result: dict[str, Any] = {}
    if given.goldens:
        goldens(given.code, given.goldens)
    if given.train:
        result["training"] = train(given.code, given.train, given.steps)
    if given.speed:
        result["speed"] = speed(given.code, given.rounds, given.threads)
        print(result["speed"]["ratios"])
    if given.save and result:
        keep("transformer-xl", result)


if __name__ == "__main__":
    main()
