"""Numbers equal to those of transformers in float32, both ways, over random ALBERTs and BERTs."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest
import torch
import transformers

import albertine
from albertine.core.batch import from_padded
from albertine.interop.huggingface.folders import save_model
from albertine.model.model import Model

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

CASES = range(36)
BOUND = 1e-5


def random_settings(case: int) -> tuple[bool, dict[str, object]]:
    """Whether it is BERT, and a configuration of transformers."""
    rng = np.random.default_rng([7, case])
    heads = int(rng.choice([1, 2, 3, 4]))
    hidden = heads * int(rng.choice([4, 7, 8, 16]))
    layers = int(rng.integers(1, 5))
    settings: dict[str, object] = {
        "vocab_size": int(rng.integers(30, 90)),
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": int(rng.integers(5, 50)),
        "hidden_act": str(rng.choice(["gelu", "gelu_new", "relu", "relu2"])),
        "max_position_embeddings": 24,
        "type_vocab_size": int(rng.integers(1, 4)),
        "initializer_range": 0.2,
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": float(rng.choice([0.0, 0.1])),
    }
    if case % 3 == 0:
        return True, settings
    settings["embedding_size"] = hidden if case % 3 == 1 else int(rng.integers(3, 20))
    settings["num_hidden_groups"] = int(rng.integers(1, layers + 1))
    settings["inner_group_num"] = int(rng.integers(1, 3))
    return False, settings


def random_batch(case: int, vocabulary: int, types: int) -> dict[str, torch.Tensor]:
    """Odd lengths; some rows padded on the right, one on the left."""
    rng = np.random.default_rng([8, case])
    rows, length = int(rng.integers(1, 5)), int(rng.integers(1, 24))
    mask = np.arange(length) < rng.integers(1, length + 1, rows)[:, None]
    if rows > 2:
        mask[1] = mask[1][::-1]
    ids = rng.integers(1, vocabulary, (rows, length)) * mask
    fields = {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": rng.integers(0, types, (rows, length)) * mask,
    }
    return {
        name: torch.from_numpy(np.ascontiguousarray(value).astype(np.int64)) for name, value in fields.items()
    }


def their_model(case: int) -> tuple[transformers.PreTrainedModel, dict[str, torch.Tensor]]:
    bert, settings = random_settings(case)
    torch.manual_seed(case)
    if bert:
        model = transformers.BertForPreTraining(transformers.BertConfig(**settings))
    else:
        model = transformers.AlbertForPreTraining(transformers.AlbertConfig(**settings))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval(), random_batch(case, settings["vocab_size"], settings["type_vocab_size"])


@torch.no_grad()
def assert_same_numbers(
    ours: Model, theirs: transformers.PreTrainedModel, batch: dict[str, torch.Tensor]
) -> None:
    real = batch["attention_mask"].bool()
    expected = theirs(**batch, output_hidden_states=True)
    base = theirs.base_model(**batch)
    found = ours(*batch.values(), output_hidden_states=True)
    packed, _ = from_padded(*batch.values())
    logits, sentence = ours.pretraining_forward(packed, torch.arange(packed.num_tokens))
    pairs = [
        (found.last_hidden_state[real], base.last_hidden_state[real]),
        (logits, expected.prediction_logits[real]),
        (found.hidden_states[-1][real], expected.hidden_states[-1][real]),
    ]
    if bool(real[:, 0].all()):  # transformers pools column 0 even where it is padding
        pairs += [(found.pooler_output, base.pooler_output), (sentence, expected[1])]
    for mine, yours in pairs:
        assert (mine - yours).abs().max() <= BOUND


@pytest.mark.sample(12)
@pytest.mark.parametrize("case", CASES)
def test_their_folder_here_and_back_again(case, tmp_path):
    theirs, batch = their_model(case)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = albertine.load(tmp_path / "theirs")
    assert ours.heads == {"pooler", "mlm", "nsp" if theirs.config.model_type == "bert" else "sop"}
    assert_same_numbers(ours, theirs, batch)

    save_model(ours, None, tmp_path / "ours")
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    assert_same_numbers(ours, again, batch)
    before, after = theirs.state_dict(), again.state_dict()
    if before.keys() == after.keys():
        assert all(torch.equal(before[name], after[name]) for name in before)
    else:
        # The same plan under a plainer name: two layers in two groups of two are four layers in four groups.
        assert theirs.config.inner_group_num > again.config.inner_group_num
    for name in ("hidden_act", "layer_norm_eps", "type_vocab_size", "hidden_dropout_prob"):
        assert getattr(theirs.config, name) == getattr(again.config, name)


@pytest.mark.parametrize("case", [0, 1, 2])
def test_a_backbone_alone(case, tmp_path):
    theirs, batch = their_model(case)
    theirs.base_model.save_pretrained(tmp_path / "backbone")
    ours = albertine.load(tmp_path / "backbone")
    assert ours.heads == {"pooler"}
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = theirs.base_model(**batch).last_hidden_state
        assert (ours(*batch.values()).last_hidden_state - expected)[real].abs().max() <= BOUND
    save_model(ours, None, tmp_path / "ours")
    again = transformers.AutoModel.from_pretrained(tmp_path / "ours")
    with torch.no_grad():
        assert (again.eval()(**batch).last_hidden_state - expected)[real].abs().max() <= BOUND


@pytest.mark.parametrize(("layers", "groups"), [(18, 14), (27, 21), (7, 3)])
def test_groups_as_transformers_rounds_them(layers, groups, tmp_path):
    config = transformers.AlbertConfig(
        vocab_size=20,
        embedding_size=4,
        hidden_size=8,
        num_hidden_layers=layers,
        num_hidden_groups=groups,
        num_attention_heads=2,
        intermediate_size=8,
        initializer_range=0.2,
    )
    theirs = transformers.AlbertForPreTraining(config).eval()
    theirs.save_pretrained(tmp_path / "m")
    ours = albertine.load(tmp_path / "m")
    assert_same_numbers(ours, theirs, random_batch(1, 20, 2))
    save_model(ours, None, tmp_path / "again")
    again = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "again")
    assert (again.config.num_hidden_layers, again.config.num_hidden_groups) == (layers, groups)


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_half_precision_files_become_float32(stored, tmp_path):
    theirs, batch = their_model(2)
    theirs.to(stored).save_pretrained(tmp_path / "half")
    ours = albertine.load(tmp_path / "half")
    assert {p.dtype for p in ours.parameters()} == {torch.float32}
    assert_same_numbers(ours, theirs.float(), batch)


def test_shards_are_read_as_one(tmp_path):
    theirs, batch = their_model(4)
    theirs.save_pretrained(tmp_path / "shards", max_shard_size="4KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").is_file()
    assert_same_numbers(albertine.load(tmp_path / "shards"), theirs, batch)
