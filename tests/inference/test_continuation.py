"""Continued texts: XLNet's way against transformers' own, left to right against one pass over all."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from albertine.cli.app import run
from albertine.core.batch import pack
from albertine.errors import DataError, ModelError, SettingsError
from albertine.inference.continuation import Continuation, Going
from albertine.inference.search import Draw, Search
from albertine.inference.seq2seq_rows import generate_texts
from albertine.interop.heads import objective_config
from albertine.interop.huggingface.folders import save_model
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from albertine.model.two_streams import Segments, predict_segments
from albertine.model.visibility import causal
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.sentencepiece import SentencePieceTokenizer
from albertine.tokenizers.train import train_sentencepiece

TEXTS = ["The old man said that he had no time.", "It was a dark and stormy night in London."]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    return train_sentencepiece(TEXTS * 20, tmp_path_factory.mktemp("xl"), 46, cls_last=True)


def model_of(tokenizer: SentencePieceTokenizer, depth: int = 2, **changes: object) -> Model:
    config = replace(
        preset("xlnet-base"),
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=24,
        plan=SharingPlan.unshared(depth),
        initializer_range=0.4,
        **changes,  # type: ignore[arg-type]
    )
    return Model(config, {"lm"}, seed=2).eval()


@pytest.fixture
def model(tokenizer: SentencePieceTokenizer) -> Model:
    return model_of(tokenizer)


@torch.no_grad()
def test_xlnets_way_is_that_of_transformers(
    model: Model, tokenizer: SentencePieceTokenizer, tmp_path: Path
) -> None:
    """Without a memory: a position after the text that attends to all of it, and to which no token
    attends."""
    save_model(model, None, tmp_path)
    theirs = transformers.XLNetLMHeadModel.from_pretrained(tmp_path).eval()
    silent = sorted(tokenizer.special_ids - {tokenizer.sep_id})
    texts = [tokenizer.encode(text) for text in TEXTS]
    ours = Continuation(model, tokenizer, texts, Going())
    logits = ours.first
    for _ in range(6):
        tokens = logits.argmax(-1).tolist()
        for row, ids in enumerate(texts):
            length = len(ids) + 1
            perm, mapping = torch.zeros(1, length, length), torch.zeros(1, 1, length)
            perm[:, :, -1], mapping[0, 0, -1] = 1, 1
            wanted = theirs(torch.tensor([[*ids, 7]]), perm_mask=perm, target_mapping=mapping).logits[0, 0]
            wanted = wanted.index_fill(0, torch.tensor(silent), float("-inf")).log_softmax(-1)
            torch.testing.assert_close(logits[row], wanted, atol=1e-4, rtol=1e-4)
            ids.append(tokens[row])
        logits = ours.next([0, 1], tokens)


@torch.no_grad()
def test_beyond_a_segment_the_beginning_is_a_memory(model: Model, tokenizer: SentencePieceTokenizer) -> None:
    ids = tokenizer.encode(TEXTS[0])
    assert len(ids) > 12
    going = Going(memory=7, segment=5)
    logits = Continuation(model, tokenizer, [ids], going).first
    memory = None
    for start in range(0, (len(ids) - 1) // 5 * 5, 5):
        part = Segments(pack([ids[start : start + 5]]))
        _, memory = predict_segments(model, part, memory, keep=7)
    assert memory is not None and memory.lengths == (7,)
    rest = [*ids[(len(ids) - 1) // 5 * 5 :], 0]
    perm = torch.ones(len(rest), 7 + len(rest), dtype=torch.bool)
    perm[:, -1] = False  # no token attends to the predicted position
    content = perm.clone()
    content[-1, -1] = True
    place = torch.tensor([len(rest) - 1])
    segments = Segments(pack([rest]), targets=place, masks=(content,), target_masks=(perm[-1:],))
    wanted, _ = predict_segments(model, segments, memory)
    open_ = logits.isfinite()
    torch.testing.assert_close(logits[open_], _log(wanted, tokenizer)[open_], atol=1e-5, rtol=1e-5)
    forgetful = Continuation(model, tokenizer, [ids], replace(going, memory=0)).first
    assert (forgetful[open_] - logits[open_]).abs().max() > 1e-3


def _log(logits: torch.Tensor, tokenizer: SentencePieceTokenizer) -> torch.Tensor:
    silent = torch.tensor(sorted(tokenizer.special_ids - {tokenizer.sep_id}))
    return logits.index_fill(1, silent, float("-inf")).log_softmax(-1)


@torch.no_grad()
def test_left_to_right_a_memory_of_all_is_one_pass_over_all(
    model: Model, tokenizer: SentencePieceTokenizer
) -> None:
    """Token by token, with other texts beside, reordered and doubled on the way."""
    first, second = (tokenizer.encode(text) for text in TEXTS)
    ours = Continuation(model, tokenizer, [first[:4], second[:9]], Going(left_to_right=True))
    ours.next([1, 0, 1], [second[9], first[4], 20])
    logits = ours.next([1, 0], [first[5], second[10]])
    for row, ids in ((0, first[:6]), (1, second[:11])):
        packed = pack([ids])
        segments = Segments(packed, causal(packed.lengths, packed.input_ids))
        wanted, _ = predict_segments(model, segments, rows=packed.last_tokens)
        open_ = logits[row].isfinite()
        torch.testing.assert_close(
            logits[row][open_], _log(wanted, tokenizer)[0][open_], atol=1e-5, rtol=1e-5
        )


@torch.no_grad()
def test_left_to_right_a_short_memory_reaches_so_far(tokenizer: SentencePieceTokenizer) -> None:
    """Of one depth: a token sees itself and the remembered ones before it, and no others."""
    model, ids = model_of(tokenizer, 1), tokenizer.encode(TEXTS[1])
    ours = Continuation(model, tokenizer, [ids[:1]], Going(left_to_right=True, memory=3))
    for token in ids[1:10]:
        logits = ours.next([0], [token])
    packed = pack([ids[:10]])
    segments = Segments(packed, causal(packed.lengths, packed.input_ids), reach=3)
    wanted, _ = predict_segments(model, segments, rows=packed.last_tokens)
    open_ = logits.isfinite()
    torch.testing.assert_close(logits[open_], _log(wanted, tokenizer)[open_], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_left_to_right_a_long_beginning_is_read_in_segments(
    model: Model, tokenizer: SentencePieceTokenizer
) -> None:
    """Two depths reach twice a memory and a segment back; with a memory of all that is all."""
    ids = (tokenizer.encode(TEXTS[0]) * 4)[:40]
    other = [(ids[0] + 5) % tokenizer.vocab_size, *ids[1:]]
    near, far = Going(left_to_right=True, memory=4, segment=4), Going(left_to_right=True, segment=5)
    logits = [Continuation(model, tokenizer, [text, ids[:7]], near).first for text in (ids, other)]
    assert torch.equal(logits[0], logits[1])
    ours = Continuation(model, tokenizer, [ids[:39], ids[:5]], far)
    logits = [ours.first[:1], ours.next([0], [ids[39]])]
    packed = pack([ids])
    segments = Segments(packed, causal(packed.lengths, packed.input_ids))
    wanted = _log(predict_segments(model, segments, rows=torch.tensor([38, 39]))[0], tokenizer)
    torch.testing.assert_close(torch.cat(logits), wanted[:, : tokenizer.vocab_size], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_without_a_memory_the_last_segment_of_a_beginning_is_seen(
    model: Model, tokenizer: SentencePieceTokenizer
) -> None:
    ids, going = tokenizer.encode(TEXTS[0])[:10], Going(left_to_right=True, memory=0, segment=10)
    whole = Continuation(model, tokenizer, [ids], replace(going, memory=512)).first
    assert torch.equal(Continuation(model, tokenizer, [ids], going).first, whole)
    last = Continuation(model, tokenizer, [ids[6:]], going).first
    assert torch.equal(Continuation(model, tokenizer, [ids], replace(going, segment=4)).first, last)


def test_texts_are_found_and_drawn(model: Model, tokenizer: SentencePieceTokenizer) -> None:
    texts = [tokenizer.encode(text) for text in TEXTS]
    both = generate_texts(model, tokenizer, texts, Search(3, 8), going=Going(segment=4))
    alone = [
        generate_texts(model, tokenizer, [ids], Search(3, 8), going=Going(segment=4))[0] for ids in texts
    ]
    for found, single in zip(both, alone, strict=True):
        assert [w.text for w in found] == [w.text for w in single] and found
    going = Going(left_to_right=True)
    drawn = [
        generate_texts(model, tokenizer, texts, Draw(4, 8, seed=seed), going=going) for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_command_continues_texts_and_refuses_the_rest(
    model: Model, tokenizer: SentencePieceTokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(model, tokenizer, tmp_path / "xl")
    how = ["--max-tokens", "6", "--segment", "4", "--json"]
    assert run(["predict", "continue", str(tmp_path / "xl"), TEXTS[0], *how]) == 0
    printed = json.loads(capsys.readouterr().out)
    found = Predictor(tmp_path / "xl").go_on(TEXTS[0], Search(1, 6), Going(segment=4))
    assert printed["text"] == TEXTS[0] and printed["found"][0]["text"] == found[0].text
    save_model(model, tokenizer, tmp_path / "causal", extra_config=objective_config({"kind": "causal"}))
    assert run(["convert", str(tmp_path / "causal"), str(tmp_path / "again"), "--to", "albertine"]) == 0
    for left, name in ((False, "xl"), (True, "causal"), (True, "again")):
        predictor = Predictor(tmp_path / name)
        scores = [
            predictor.go_on(TEXTS[0], Search(1, 6), Going(way))[0].score for way in (None, left, not left)
        ]
        assert scores[0] == scores[1] != scores[2]
    capsys.readouterr()
    rotary = replace(model.config, positions="rotary", embedding_norm=True)
    save_model(Model(rotary, {"mlm"}), tokenizer, tmp_path / "rotary")
    with pytest.raises(ModelError, match="no language model with relative positions"):
        Predictor(tmp_path / "rotary").go_on(TEXTS[0], Search(1, 6))
    with pytest.raises(DataError, match="no text"):
        Predictor(tmp_path / "xl").go_on(" ", Search(1, 6))
    with pytest.raises(DataError, match=r"^text: has half of a character"):
        Predictor(tmp_path / "xl").go_on("a\ud800", Search(1, 6))
    with pytest.raises(ModelError, match=r"not trained with \[MASK\].*albertine predict continue .*xl TEXT"):
        Predictor(tmp_path / "xl").fill_mask("It was a [MASK].")
    assert run(["predict", "continue", str(tmp_path / "rotary"), TEXTS[0]]) == 2
    assert "no language model with relative positions" in capsys.readouterr().err
    assert np.isfinite(found[0].score)


@torch.no_grad()
def test_without_a_memory_the_next_token_sees_the_newest_ones(
    model: Model, tokenizer: SentencePieceTokenizer
) -> None:
    """Within a segment all of them, beyond it the last segment; catches: a text known by its last token."""
    ids, going = tokenizer.encode(TEXTS[0])[:10], Going(left_to_right=True, memory=0, segment=10)
    logits = Continuation(model, tokenizer, [ids[:9]], going).next([0], [ids[9]])
    torch.testing.assert_close(logits, Continuation(model, tokenizer, [ids], going).first)
    beyond = Continuation(model, tokenizer, [ids], replace(going, segment=6)).first
    torch.testing.assert_close(beyond, Continuation(model, tokenizer, [ids[4:]], going).first)


@pytest.mark.parametrize("given", [{"memory": 0, "segment": 0}, {"segment": -1}, {"memory": -1}])
def test_segments_without_targets_are_reported(given: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match="segments of 1 token or more, and a memory of 0 or more"):
        Going(**given)
