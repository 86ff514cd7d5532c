"""Relative attention, memory and two streams against what XLNet's own code computed (xlnet_official.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine.core.batch import pack
from albertine.model.config import EncoderConfig
from albertine.model.encoder import Encoder
from albertine.model.segment_memory import Memory
from albertine.model.sharing import SharingPlan
from albertine.model.two_streams import Segments, encode_segments

FILE = np.load(Path(__file__).with_name("xlnet_official.npz"))
CASES: list[dict[str, Any]] = json.loads(bytes(FILE["configs.json"]))


def encoder_of(number: int, case: dict[str, Any]) -> tuple[Encoder, torch.Tensor]:
    """An encoder with the weights of a case, and the start of its second stream."""
    depth, hidden = case["n_layer"], case["d_model"]
    config = EncoderConfig(
        vocab_size=case["n_token"],
        embedding_size=hidden,
        hidden_size=hidden,
        num_attention_heads=case["n_head"],
        intermediate_size=case["d_inner"],
        plan=SharingPlan.unshared(depth),
        hidden_act={"gelu": "gelu_new", "relu": "relu"}[case["act"]],
        type_vocab_size=3 if case["seg"] else 0,
        positions="relative",
        clamp_positions=max(0, case["clamp"]),
        relative_biases="block" if case["untie"] else "tied",
        embedding_norm=False,
    )
    w = {
        name.split("/w/transformer/")[1]: torch.from_numpy(FILE[name])
        for name in FILE.files
        if name.startswith(f"{number}/w/")
    }
    encoder = Encoder(config).eval()
    state = {"embeddings.word.weight": w["word_embedding/lookup_table"]}
    for d in range(depth):
        a, f, layer = f"attention.{d}", f"feed_forward.{d}", f"layer_{d}"
        kernels = {"query": "q", "key": "k", "value": "v", "position": "r"}
        for ours, theirs in kernels.items():
            state[f"{a}.{ours}.weight"] = w[f"{layer}/rel_attn/{theirs}/kernel"].flatten(1).T
        state[f"{a}.output.weight"] = w[f"{layer}/rel_attn/o/kernel"].flatten(1)
        for part, place in ((a, "rel_attn"), (f, "ff")):
            state[f"{part}.layer_norm.weight"] = w[f"{layer}/{place}/LayerNorm/gamma"]
            state[f"{part}.layer_norm.bias"] = w[f"{layer}/{place}/LayerNorm/beta"]
        for part, place in (("intermediate", "layer_1"), ("output", "layer_2")):
            state[f"{f}.{part}.weight"] = w[f"{layer}/ff/{place}/kernel"].T
            state[f"{f}.{part}.bias"] = w[f"{layer}/ff/{place}/bias"]
        if case["untie"] or d == 0:
            names = {"content": "r_w_bias", "position": "r_r_bias"}
            names |= {"segment": "r_s_bias"} if case["seg"] else {}
            for ours, theirs in names.items():
                state[f"{a}.biases.{ours}"] = w[theirs][d] if case["untie"] else w[theirs]
        if case["seg"]:
            state[f"{a}.segments"] = w["seg_embed"][d]
    encoder.load_state_dict(state)  # strict: no name of ours is missing, none too many
    return encoder, w.get("mask_emb/mask_emb", torch.zeros(hidden)).flatten()


def masks_of(number: int, case: dict[str, Any], b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which keys the rows of content and of the second stream see, bool (q, m + q): a row of content sees
    itself, memory is seen by all."""
    q, m = case["q"], FILE[f"{number}/in/mem0"].shape[0]
    blocked = FILE[f"{number}/in/perm"][:, :, b] > 0
    if not case["two"]:
        blocked[:] = False
    if case["mask"]:
        blocked = blocked | (FILE[f"{number}/in/pad"][None, :, b] > 0)
    if case["attn_type"] == "uni":
        blocked = blocked | np.triu(np.ones((q, q), bool), 1)
    query = np.concatenate([np.ones((q, m), bool), ~blocked], 1)
    content = query.copy()
    content[np.arange(q), m + np.arange(q)] = True
    if case["same"]:  # of all rows that this query might see, those at most m before it
        far = np.arange(q)[:, None] + m - np.arange(m + q)
        query, content = (x & (far <= m) for x in (query, content))
    return torch.from_numpy(content), torch.from_numpy(query)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_equals_the_official_code(number: int) -> None:
    case = CASES[number]
    encoder, query = encoder_of(number, case)
    ids, types = (FILE[f"{number}/in/{name}"].T for name in ("ids", "segs"))
    depth, q, batch = case["n_layer"], case["q"], case["batch"]
    given = [torch.from_numpy(FILE[f"{number}/in/mem{d}"]).transpose(0, 1) for d in range(depth)]
    m = given[0].shape[1]
    memory = Memory(tuple(x.flatten(0, 1) for x in given), (m,) * batch)
    masks = [masks_of(number, case, b) for b in range(batch)]
    two, targets = case["two"], None
    if two:
        whole = FILE[f"{number}/in/tmap"].argmax(1).T if case["tm"] else np.tile(np.arange(q), (batch, 1))
        targets = torch.from_numpy((whole + q * np.arange(batch)[:, None]).flatten())
        query_masks = tuple(mask[1][rows] for mask, rows in zip(masks, torch.from_numpy(whole), strict=True))
    segments = Segments(
        pack(list(ids), list(types)),
        targets=targets,
        backward=tuple(b >= batch // 2 for b in range(batch)) if case["bi"] else None,
        masks=tuple(content for content, _ in masks),
        target_masks=query_masks if two else None,
    )
    if not case["tm"]:  # all positions are queries, and those that are not predicted begin with their token
        places = torch.from_numpy(FILE[f"{number}/in/inq"].T.reshape(-1, 1))
        query = places * query + (1 - places) * encoder.embeddings.word.weight[ids.flatten()]
    with torch.no_grad():
        out, kept = encode_segments(
            encoder, segments, memory, query=query, keep=case["mem_len"], reuse=case["reuse"]
        )
    expected = torch.from_numpy(FILE[f"{number}/out/output"]).transpose(0, 1)
    found = out.view(batch, -1, case["d_model"])
    rows = torch.ones(expected.shape[:2], dtype=torch.bool)
    if two and targets is not None:  # a target that sees nothing is a mean of all values in their code
        rows = torch.stack([mask[:, :].any(1) for mask in query_masks])
    elif case["mask"]:
        rows = torch.from_numpy(FILE[f"{number}/in/pad"].T == 0)
    assert rows.float().mean() > 0.8
    torch.testing.assert_close(found[rows], expected[rows], atol=1e-5, rtol=0)
    for d in range(depth):
        theirs = torch.from_numpy(FILE[f"{number}/out/mem{d}"]).transpose(0, 1)
        assert kept.lengths == (theirs.shape[1],) * batch
        torch.testing.assert_close(kept.states[d].view(theirs.shape), theirs, atol=1e-5, rtol=0)
