"""XLNet's layouts: the numbers of transformers, both ways, Google's names, and models that share weights."""

from __future__ import annotations

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import albertine
from albertine.core.batch import pack
from albertine.errors import ModelError, SettingsError
from albertine.interop.heads import left_to_right, objective_config
from albertine.interop.huggingface.folders import read_folder, save_model
from albertine.interop.huggingface.xlnet_names import MASK_EMBEDDING, XLNET, xlnet_tf
from albertine.interop.keymap import check, to_ours, to_theirs
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.resharing import replan, shared_again
from albertine.model.segment_memory import Memory
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier, TaskModel
from albertine.model.two_streams import Segments, encode_segments, predict_segments
from albertine.model.visibility import Visibility, causal
from albertine.training.optimizers import build_optimizer
from tests.interop.test_roformer import assert_same_model, jostled
from tests.model import builders
from tests.model.test_xlnet_goldens import CASES, FILE, encoder_of

BOUND = 1e-5
BLOCK: dict[str, Any] = {
    "positions": "relative",
    "embedding_size": 24,
    "type_vocab_size": 3,
    "embedding_norm": False,
    "summary": "last",
    "initialization": "normal",
}
SHARED: dict[str, dict[str, Any]] = {
    "all": {},
    "groups": {"plan": SharingPlan.grouped(4, 2)},
    "attention alone": {"plan": SharingPlan((0, 0, 0), (0, 1, 2))},
    "tied biases": {"plan": SharingPlan.unshared(3), "relative_biases": "tied"},
    "shared and tied": {"relative_biases": "tied"},
}


def our_model(heads: set[str] | None = None, **changes: Any) -> Model:
    """A tiny XLNet, every tensor of it away from its start."""
    model = Model(builders.config(**(BLOCK | changes)), heads or {"lm", "pooler"}, seed=1).eval()
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def their_config(case: int, **changes: Any) -> transformers.XLNetConfig:
    rng = np.random.default_rng([15, case])
    heads = int(rng.choice([1, 2, 3]))
    settings = {
        "vocab_size": int(rng.integers(30, 90)),
        "d_model": heads * int(rng.choice([4, 6, 8])),
        "n_layer": int(rng.integers(1, 4)),
        "n_head": heads,
        "d_inner": int(rng.integers(5, 50)),
        "ff_activation": ["gelu_new", "relu", "gelu"][case % 3],
        "clamp_len": [-1, 3, 0, 5][case % 4],
        "bi_data": bool(case % 2),
        "mem_len": [4, 11, 7][case % 3],
        "reuse_len": [None, 3][case // 3 % 2],
        "initializer_range": 0.2,
        "layer_norm_eps": 1e-12,
        "dropout": 0.0,
    }
    return transformers.XLNetConfig(**(settings | changes))


def read_back(theirs: transformers.PreTrainedModel, folder: Path) -> Model:
    """Their model by its folder; that half of a batch is backward is an argument of the forward pass, not a
    setting of the folder."""
    theirs.save_pretrained(folder)
    tree = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(tree | {"bi_data": False}))
    return albertine.load(folder)


class Step:
    """One of several segments of a text, with its order of factorisation where there are two streams."""

    def __init__(self, case: int, number: int, vocabulary: int, batch: int = 4, length: int = 6) -> None:
        rng = np.random.default_rng([16, case, number])
        self.ids = torch.from_numpy(rng.integers(0, vocabulary, (batch, length)))
        self.types = torch.from_numpy(np.sort(rng.integers(0, 3, (batch, length)), 1))
        self.two = bool(case % 5 % 2) and number > 0  # the first token of an order sees but the memory
        self.ranks = torch.from_numpy(np.stack([rng.permutation(length) for _ in range(batch)]))
        count = 3
        self.targets = torch.from_numpy(
            np.sort(np.stack([rng.choice(length, count, replace=False) for _ in range(batch)]), 1)
        )
        self.weights = torch.from_numpy(rng.standard_normal((batch, count if self.two else length, 1)))

    def theirs(self) -> dict[str, Tensor]:
        given = {"input_ids": self.ids, "token_type_ids": self.types}
        if self.two:
            length = self.ids.shape[1]
            given["perm_mask"] = (self.ranks[:, None, :] >= self.ranks[:, :, None]).float()
            given["target_mapping"] = torch.nn.functional.one_hot(self.targets, length).float()
        return given

    def ours(self, backward: bool) -> Segments:
        batch, length = self.ids.shape
        packed = pack(list(self.ids.numpy()), list(self.types.numpy()))
        halves = tuple(b >= batch // 2 for b in range(batch)) if backward else None
        if not self.two:
            return Segments(packed, backward=halves)
        ranks = self.ranks.flatten()
        rows = (self.targets + length * torch.arange(batch)[:, None]).flatten()
        return Segments(
            packed,
            visible=Visibility(ranks, ranks + 1),
            targets=rows,
            target_until=ranks[rows],
            backward=halves,
        )


@pytest.mark.sample(10)
@pytest.mark.parametrize("case", range(30))
def test_outputs_memories_and_gradients_are_those_of_transformers(case: int, tmp_path: Path) -> None:
    config = their_config(case)
    torch.manual_seed(case)
    theirs = jostled(transformers.XLNetLMHeadModel(config))
    ours = read_back(theirs, tmp_path)
    assert ours.lm is not None and ours.config.architecture == "xlnet"
    mems, memory, total, wanted = None, None, torch.zeros(()), torch.zeros(())
    for number in range(4):
        step = Step(case, number, config.vocab_size)
        out = theirs.transformer(**step.theirs(), mems=mems, use_mems=True)
        mine, memory = encode_segments(
            ours.encoder,
            step.ours(config.bi_data),
            memory,
            query=ours.lm.query,
            keep=config.mem_len,
            reuse=config.reuse_len,
        )
        mems = out.mems
        states = out.last_hidden_state
        torch.testing.assert_close(mine.view(states.shape), states, atol=BOUND, rtol=0)
        for one, other in zip(memory.states, mems, strict=True):
            kept = other.transpose(0, 1)
            assert memory.lengths == (kept.shape[1],) * len(kept)
            torch.testing.assert_close(one.view(kept.shape), kept, atol=BOUND, rtol=0)
        logits = ours.lm(mine, ours.encoder.embeddings).view(*states.shape[:2], -1)
        torch.testing.assert_close(logits, theirs.lm_loss(states), atol=10 * BOUND, rtol=1e-5)
        total = total + (step.weights * logits.log_softmax(-1)).sum()
        wanted = wanted + (step.weights * theirs.lm_loss(states).log_softmax(-1)).sum()
    assert len(memory.lengths) == 4 and memory.lengths[0] <= config.mem_len
    total.backward()
    wanted.backward()
    gradients = {n: p.grad for n, p in ours.named_parameters() if p.grad is not None}
    found = to_theirs(XLNET.entries(gradients), gradients, config.n_head)
    for name, parameter in theirs.named_parameters():
        if parameter.grad is None:
            assert name not in found or not found[name].any(), name
            continue
        gap = (found[name] - parameter.grad).norm() / parameter.grad.norm().clamp(min=1e-3)
        assert gap <= 1e-4, (name, float(gap))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_call_is_that_of_transformers(side: str, tmp_path: Path) -> None:
    """XLNet pads on the left: what is not read changes nothing, wherever it stands."""
    theirs = jostled(transformers.XLNetModel(their_config(3, bi_data=False)))
    ours = read_back(theirs, tmp_path)
    rng = np.random.default_rng(5)
    ids = torch.from_numpy(rng.integers(0, theirs.config.vocab_size, (5, 9)))
    lengths = torch.tensor([9, 1, 4, 8, 2])
    mask = (torch.arange(9) < lengths[:, None]).long()
    mask = mask.flip(1) if side == "left" else mask
    types = torch.where(mask == 1, torch.from_numpy(rng.integers(0, 3, (5, 9))), 3)
    with torch.no_grad():
        wanted = theirs(ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        found = ours(ids, mask, types)
    gap = (found.last_hidden_state - wanted)[mask.bool()].abs().max()
    assert gap <= BOUND
    with torch.no_grad():
        long = torch.randint(0, 30, (1, 700))
        assert ours(long).last_hidden_state.shape[1] == 700  # no table of positions, no longest text


def test_presets_have_the_published_counts() -> None:
    """They are those of transformers' XLNetModel: the encoder and the start of the second stream, without the
    bias of the language-model head and without a pooler."""
    for name, count, shape in (
        ("xlnet-base", 116_718_336, {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}),
        ("xlnet-large", 360_268_800, {"d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096}),
    ):
        with torch.device("meta"):
            theirs = transformers.XLNetModel(transformers.XLNetConfig(vocab_size=32000, **shape))
            whole = Model(preset(name), {"lm"})
        assert whole.lm is not None
        ours = sum(p.numel() for p in whole.encoder.parameters()) + whole.lm.query.numel()
        assert ours == sum(p.numel() for p in theirs.parameters()) == count
        assert sum(p.numel() for p in whole.parameters()) == count + 32000


@torch.no_grad()
def test_transformers_loads_what_is_written(tmp_path: Path) -> None:
    ours = our_model(plan=SharingPlan.unshared(3), clamp_positions=4)
    save_model(ours, None, tmp_path / "lm")
    tree = json.loads((tmp_path / "lm" / "config.json").read_text())
    assert tree["model_type"] == "xlnet" and tree["architectures"] == ["XLNetLMHeadModel"]
    theirs, report = transformers.XLNetLMHeadModel.from_pretrained(tmp_path / "lm", output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    assert set(report["unexpected_keys"]) == {f"sequence_summary.summary.{x}" for x in ("weight", "bias")}
    again = albertine.load(tmp_path / "lm")
    assert_same_model(again, ours)
    step = Step(1, 1, builders.VOCABULARY)
    assert step.two
    memory = Memory(tuple(torch.zeros(4 * 2, 24) for _ in range(3)), (2,) * 4)
    mems = [x.view(4, 2, 24).transpose(0, 1) for x in memory.states]
    logits, _ = predict_segments(ours, step.ours(False), memory)
    wanted = theirs.eval()(**step.theirs(), mems=mems, use_mems=True).logits
    torch.testing.assert_close(logits.view(wanted.shape), wanted, atol=1e-4, rtol=1e-5)
    without = our_model({"pooler"}, plan=SharingPlan.unshared(3))
    save_model(without, None, tmp_path / "alone")
    model, report = transformers.AutoModel.from_pretrained(tmp_path / "alone", output_loading_info=True)
    assert type(model) is transformers.XLNetModel and not report["missing_keys"]
    assert not model.mask_emb.any()


@torch.no_grad()
def test_a_causal_model_attends_to_the_left_in_transformers_too(tmp_path: Path) -> None:
    """`attn_type` uni, over two segments with a memory; a tuned model is bidirectional, and its configuration
    states it."""
    ours = our_model(plan=SharingPlan.unshared(3))
    save_model(ours, None, tmp_path, extra_config=objective_config({"kind": "causal"}))
    theirs = transformers.XLNetLMHeadModel.from_pretrained(tmp_path, mem_len=8).eval()
    assert theirs.config.attn_type == "uni"
    found = read_folder(tmp_path)
    assert left_to_right(found)
    mems, memory = None, None
    for number in range(2):
        ids = Step(2, number, builders.VOCABULARY).ids
        packed = pack(list(ids.numpy()))
        segments = Segments(packed, causal(packed.lengths, packed.input_ids))
        logits, memory = predict_segments(found.model, segments, memory, keep=8)
        out = theirs(ids, mems=mems, use_mems=True)
        mems = out.mems
        torch.testing.assert_close(logits.view(out.logits.shape), out.logits, atol=1e-4, rtol=1e-5)
    save_model(found.model, None, tmp_path / "tuned")
    assert json.loads((tmp_path / "tuned" / "config.json").read_text())["attn_type"] == "bi"


def test_a_backbone_alone_keeps_the_start_of_its_second_stream(tmp_path: Path) -> None:
    theirs = jostled(transformers.XLNetModel(their_config(8, bi_data=False)))
    theirs.save_pretrained(tmp_path / "theirs")
    found = read_folder(tmp_path / "theirs")
    assert found.model.lm is None and found.extra.keys() == {MASK_EMBEDDING}
    save_model(found.model, None, tmp_path / "ours", extra_tensors=found.extra)
    again = transformers.XLNetModel.from_pretrained(tmp_path / "ours")
    wanted, state = theirs.state_dict(), again.state_dict()
    assert wanted.keys() == state.keys()
    assert all(torch.equal(wanted[name], state[name]) for name in wanted)


@pytest.mark.parametrize("name", SHARED)
def test_shared_weights_are_written_out_and_folded_again(name: str, tmp_path: Path) -> None:
    ours = our_model(**SHARED[name])
    save_model(ours, None, tmp_path / "own")
    assert json.loads((tmp_path / "own" / "config.json").read_text())["model_type"] == "albertine"
    assert_same_model(albertine.load(tmp_path / "own"), ours)
    save_model(ours, None, tmp_path / "copies", layout="transformers")
    assert json.loads((tmp_path / "copies" / "config.json").read_text())["model_type"] == "xlnet"
    assert_same_model(albertine.load(tmp_path / "copies"), ours)
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "copies").eval()
    step = Step(0, 0, builders.VOCABULARY)
    with torch.no_grad():
        wanted = theirs(**step.theirs()).last_hidden_state
        found = ours(step.ids, token_type_ids=step.types).last_hidden_state
    torch.testing.assert_close(found, wanted, atol=BOUND, rtol=0)
    theirs.layer[1].rel_attn.r_w_bias.data.mul_(1.5)  # no longer copies of one model
    theirs.save_pretrained(tmp_path / "copies")
    apart = albertine.load(tmp_path / "copies").config
    assert apart.plan == SharingPlan.unshared(apart.plan.depth) and apart.relative_biases == "block"


@pytest.mark.parametrize(
    "plan", [SharingPlan.shared(6), SharingPlan.grouped(6, 2), SharingPlan.grouped(6, 3)], ids=str
)
@pytest.mark.parametrize("tied", ["block", "tied"])
def test_unshared_with_equal_entries_is_shared(plan: SharingPlan, tied: str) -> None:
    """A block has 5H² + 2H of attention and its LayerNorm, 3H of biases, 2H of segments, and a
    feed-forward with its own."""
    ours = our_model(plan=plan, relative_biases=tied)
    apart = replan(ours, SharingPlan.unshared(6))
    step = Step(1, 1, builders.VOCABULARY)
    memory = Memory(tuple(torch.randn(4 * 2, 24) for _ in range(6)), (2,) * 4)
    with torch.no_grad():
        one, other = (predict_segments(m, step.ours(True), memory)[0] for m in (ours, apart))
    torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    h, f, blocks = 24, 40, plan.num_attention_blocks
    biases = 3 * h * (blocks if tied == "block" else 1)
    count = 53 * h + blocks * (5 * h * h + 2 * h + 2 * h + 2 * h * f + f + h + 2 * h) + biases
    assert sum(p.numel() for p in ours.encoder.parameters()) == count
    again = shared_again(apart)
    assert again.config.plan == SharingPlan.shared(6)
    if plan == SharingPlan.shared(6):
        for name, x in again.state_dict().items():
            torch.testing.assert_close(x, ours.state_dict()[name])


@pytest.mark.parametrize("number", range(len(CASES)))
def test_googles_names_and_shapes(number: int) -> None:
    """Every name in the weights that the official code stored is in the map, none is too many, and they go
    to ours, on to transformers' and back again bit by bit."""
    case = CASES[number]
    prefix = f"{number}/w/"
    stored = {f"model/{n.removeprefix(prefix)}": FILE[n] for n in FILE.files if n.startswith(prefix)}
    encoder, _ = encoder_of(number, case)
    model = Model(encoder.config, {"lm"} if case["two"] else set())
    keymap, heads = xlnet_tf(case["n_layer"], tied=not case["untie"]), case["n_head"]
    names = [n for n in model.state_dict() if n != "lm.bias"]  # the goldens are of the backbone
    rules = keymap.entries(names)
    assert {rule.theirs for rule in rules.values()} == stored.keys()
    check(rules, model.state_dict(), {n: x.shape for n, x in stored.items()}, "x", heads)
    ours = to_ours(rules, lambda n: torch.from_numpy(stored[n]), "x", heads)
    for name, x in encoder.state_dict().items():
        assert torch.equal(ours[f"encoder.{name}"], x), name
    if case["untie"]:
        there = XLNET.entries(names)
        abroad = to_theirs(there, ours, heads)
        ours = to_ours(there, abroad.__getitem__, "x", heads)
    back = to_theirs(rules, ours, heads)
    assert all(np.array_equal(back[name].numpy(), x) for name, x in stored.items())


def test_googles_names_of_heads() -> None:
    model = our_model(plan=SharingPlan.unshared(3))
    found = to_theirs(xlnet_tf(3).entries(model.state_dict()), model.state_dict(), 4)
    assert found["model/lm_loss/bias"].shape == (53,)
    assert model.pooler is not None
    assert torch.equal(found["model/sequnece_summary/summary/kernel"], model.pooler.dense.weight.T)
    assert found["model/transformer/mask_emb/mask_emb"].shape == (1, 1, 24)
    assert found["model/transformer/layer_2/rel_attn/o/kernel"].shape == (24, 4, 6)
    assert found["model/transformer/r_w_bias"].shape == (3, 4, 6)
    assert found["model/transformer/seg_embed"].shape == (3, 2, 4, 6)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["ForSequenceClassification", "ForTokenClassification"])
def test_heads_of_tasks_have_their_names(kind: str, tmp_path: Path) -> None:
    base = our_model({"pooler"}, plan=SharingPlan.unshared(2))
    head: TaskModel = Classifier(base, 5, per_token="Token" in kind, seed=2).eval()
    extra_config = {"architectures": [f"XLNet{kind}"], "id2label": {str(i): f"c{i}" for i in range(5)}}
    save_model(base, None, tmp_path, extra_tensors=head.head, extra_config=extra_config)
    theirs, report = getattr(transformers, f"XLNet{kind}").from_pretrained(tmp_path, output_loading_info=True)
    pooler = set() if "Sequence" in kind else {f"sequence_summary.summary.{x}" for x in ("weight", "bias")}
    assert not report["missing_keys"] and set(report["unexpected_keys"]) == pooler
    ids, types = torch.arange(12).view(2, 6), torch.tensor([[0, 0, 0, 1, 1, 2]] * 2)
    packed = pack(list(ids.numpy()), list(types.numpy()))
    wanted = theirs.eval()(ids, token_type_ids=types).logits
    torch.testing.assert_close(head(packed).view(wanted.shape), wanted, atol=BOUND, rtol=1e-5)
    found = read_folder(tmp_path)
    assert found.extra.keys() - {MASK_EMBEDDING} == {"classifier.weight", "classifier.bias"}


def test_a_classifier_learns_as_in_transformers(tmp_path: Path) -> None:
    """Update by update, from equal weights and without dropout: texts of many lengths, padded there on the
    left, and gradients that are cut to a length."""
    base = our_model({"pooler"}, plan=SharingPlan.unshared(2))
    ours = Classifier(base, 2, dropout=0.0, seed=2).train()
    labels = {"architectures": ["XLNetForSequenceClassification"], "id2label": {"0": "no", "1": "yes"}}
    save_model(base, None, tmp_path, extra_tensors=ours.head, extra_config=labels)
    theirs = transformers.XLNetForSequenceClassification.from_pretrained(tmp_path, summary_last_dropout=0.0)
    assert theirs.config.dropout == 0
    adamw = torch.optim.AdamW(theirs.parameters(), eps=1e-6, weight_decay=0.0)
    optimizers, losses = (build_optimizer(ours, "adamw", weight_decay=0.0), adamw), []
    for step in range(1, 31):
        rng = np.random.default_rng(step % 3)
        lengths = rng.integers(2, 12, 6)
        ids = [rng.integers(6, builders.VOCABULARY, n) for n in lengths]
        types = [np.array([0] * (n - 1) + [2]) for n in lengths]
        answers = torch.tensor([int(x[0] % 2) for x in ids])
        most = max(lengths)
        mask = torch.tensor([[0] * (most - n) + [1] * n for n in lengths])
        padded = torch.tensor([[5] * (most - len(x)) + x.tolist() for x in ids])
        kinds = torch.tensor([[3] * (most - len(x)) + x.tolist() for x in types])
        mine = F.cross_entropy(ours(pack(ids, types)), answers)
        other = theirs.train()(padded, attention_mask=mask, token_type_ids=kinds, labels=answers).loss
        for loss, model, optimizer in zip((mine, other), (ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * min(1, step / 5)
            optimizer.step()
        losses.append((mine.item(), other.item()))
    assert max(abs(a - b) for a, b in losses) <= 1e-4 and losses[-1][0] < 0.5 * losses[0][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attn_type": "uni"}, "attn_type `uni`"),
        ({"bi_data": True}, "bi_data"),
        ({"d_head": 3}, "heads of 3"),
        ({"summary_type": "mean"}, "summary `mean`"),
        ({"summary_activation": None}, "summary_activation"),
        ({"n_layer": 9}, "has no transformer.layer"),
        ({"n_layer": 1}, "no place for"),
    ],
)
def test_what_cannot_be_computed_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    theirs = transformers.XLNetLMHeadModel(their_config(4, bi_data=False, n_layer=2))
    theirs.save_pretrained(tmp_path)
    tree = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(tree | change))
    with pytest.raises(ModelError, match=message):
        albertine.load(tmp_path)


def test_what_transformers_cannot_hold_is_reported() -> None:
    for changes, message in (
        ({"embedding_size": 8}, "a mapping of embeddings"),
        ({"type_vocab_size": 0}, "type_vocab_size 0, no segments"),
        ({"norm": "pre"}, "norm pre"),
    ):
        with pytest.raises(SettingsError, match=message):
            save_model(our_model(**changes), None, "nowhere", layout="xlnet")
    with pytest.raises(SettingsError, match="summary last"):
        config = replace(builders.config(summary="last"), positions="rotary")
        save_model(Model(config), None, "nowhere", layout="roformer")


def test_a_preset_filled_at_random_is_an_xlnet_that_transformers_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from albertine.model import presets

    small = replace(presets.PRESETS["xlnet-base"], vocab_size=60, embedding_size=24, hidden_size=24)
    small = replace(small, intermediate_size=30, plan=SharingPlan.unshared(2))
    monkeypatch.setitem(presets.PRESETS, "xlnet-base", small)
    model = albertine.load("xlnet-base", random=True, seed=4)
    assert model.heads == {"lm"} and model.config.lead == 0
    save_model(model, None, tmp_path)
    assert type(transformers.AutoModelForCausalLM.from_pretrained(tmp_path)).__name__ == "XLNetLMHeadModel"


@pytest.mark.parametrize("training", [True, False])
def test_the_feed_forward_drops_out_where_transformers_does(training: bool) -> None:
    """With the same random numbers: in the middle, and at the end."""
    from transformers.models.xlnet.modeling_xlnet import XLNetFeedForward

    ours = our_model(plan=SharingPlan.unshared(1), hidden_dropout_prob=0.4).train(training)
    block = ours.encoder.feed_forward[0]
    shape = {"d_model": 24, "d_inner": 40, "n_head": 4, "ff_activation": "gelu_new"}
    theirs = XLNetFeedForward(transformers.XLNetConfig(dropout=0.4, **shape)).train(training)
    prefix = "transformer.layer.0.ff."
    state = to_theirs(XLNET.entries(ours.state_dict()), ours.state_dict(), 4)
    theirs.load_state_dict({n.removeprefix(prefix): x for n, x in state.items() if n.startswith(prefix)})
    x = torch.randn(7, 24)
    torch.manual_seed(3)
    wanted = theirs(x)
    torch.manual_seed(3)
    with ours.encoder.forward_pass():
        found = block(x)
    torch.testing.assert_close(found, wanted, atol=BOUND, rtol=1e-5)
