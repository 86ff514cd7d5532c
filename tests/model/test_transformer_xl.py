"""A causal encoder with memory against three segments in a row by Transformer-XL's own code, in float64
(`benchmarks/transformer_xl.py` wrote them)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from albertine.core.batch import pack
from albertine.model.segment_memory import Memory
from albertine.model.two_streams import Segments, encode_segments
from albertine.model.visibility import causal
from benchmarks.transformer_xl import GOLDENS, SMALL, ours_of

FILE = np.load(Path(__file__).with_name("transformer_xl.npz"))


@pytest.mark.parametrize("number", range(len(GOLDENS)))
def test_three_segments_equal_those_of_the_official_code(number: int) -> None:
    case = GOLDENS[number]
    weights = {n.removeprefix("w/"): torch.from_numpy(FILE[n]) for n in FILE.files if n.startswith("w/")}
    model = ours_of(weights, SMALL, int(case["clamp"]), case.get("pre", False)).double().eval()
    memory: Memory | None = None
    keep = int(case["memory"])
    for part in range(3):
        batch = pack(list(FILE["ids"][part].T))
        held = 0 if memory is None else memory.lengths[0]
        reach = keep - 1 if case["same"] and held + SMALL["segment"] > keep else None
        segments = Segments(batch, visible=causal(batch.lengths, batch.input_ids), reach=reach)
        with torch.no_grad():
            found, memory = encode_segments(model.encoder, segments, memory, keep=keep)
        expected = torch.from_numpy(FILE[f"{number}/{part}"])
        # Their frequencies are float32 in either case, here the sines too.
        torch.testing.assert_close(found.view_as(expected), expected, atol=1e-7, rtol=0)
    assert memory is not None and set(memory.lengths) == {min(keep, 15)}
