"""Hidden states and attention weights equal to those of transformers, for each of its layouts."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

import albertine
from tests.interop import test_modernbert, test_roformer, test_xlnet
from tests.interop.test_parity import their_model as albert_or_bert
from tests.interop.test_roformer import batch_of, jostled

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

MODELS: dict[str, Callable[[int], transformers.PreTrainedModel]] = {
    "bert": lambda case: albert_or_bert(3 * case)[0],
    "albert": lambda case: albert_or_bert(3 * case + 1)[0],
    "roformer": test_roformer.their_model,
    "modernbert": test_modernbert.their_model,
    "xlnet": lambda case: jostled(
        transformers.XLNetLMHeadModel(test_xlnet.their_config(case, bi_data=False, mem_len=0))
    ),
}


@pytest.mark.parametrize("case", range(3))
@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_hidden_states_and_attentions_of_their_folder(kind: str, case: int, tmp_path: Path) -> None:
    theirs = MODELS[kind](case)
    theirs.save_pretrained(tmp_path / "m")
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "m", attn_implementation="eager").eval()
    ours = albertine.load(tmp_path / "m")
    batch = batch_of(theirs.config.vocab_size, ours.config.type_vocab_size or 1, 20)
    mask = batch["attention_mask"]
    given = dict(batch)
    if kind == "modernbert":  # which has no segments
        del given["token_type_ids"]
    expected = theirs(**given, output_hidden_states=True, output_attentions=True)
    found = ours(*batch.values(), output_hidden_states=True, output_attentions=True)
    real = mask.bool()
    assert len(found.hidden_states) == ours.config.plan.depth + 1
    for mine, yours in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert (mine - yours)[real].abs().max() <= 1e-5
    pairs = (real[:, :, None] & real[:, None])[:, None]
    for mine, yours in zip(found.attentions, expected.attentions, strict=True):
        assert (mine - yours).mul(pairs).abs().max() <= 1e-5
        assert not mine.masked_select(~pairs.expand_as(mine)).any()
