"""The masked-LM head at every depth, and the command that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import albertine as package
from albertine.analysis.lens import lens, max_depth
from albertine.cli.app import run
from albertine.errors import DataError, ModelError, SettingsError
from albertine.inference.fill_mask import fill_masks
from albertine.model.model import Model
from albertine.model.resharing import replan
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.base import Tokenizer
from tests import reference
from tests.model import builders
from tests.model.test_universal import universal

TEXT = "今天[MASK]气很[MASK]。"
PRE = {"norm": "pre", "positions": "rotary"}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return package.load_tokenizer("albertine-mini-zh")


def chinese(tokenizer: Tokenizer, plan: SharingPlan | None = None, **changes: Any) -> Model:
    return builders.model(plan, vocab_size=tokenizer.vocab_size, **changes)


def probabilities(model: Model, tokenizer: Tokenizer, ids: list[int]) -> list[torch.Tensor]:
    """(L, V) at every depth by the reference; the final norm of a pre-norm encoder is applied to each
    but the embeddings."""
    row = torch.tensor([ids])
    p, config = dict(model.named_parameters()), model.config
    with torch.no_grad():
        states = reference.encode(model, row, torch.ones_like(row), torch.zeros_like(row))
        if config.norm == "pre":
            earlier = [reference.layer_norm(p, "encoder.final_norm", x, 1e-12) for x in states[1:-1]]
            states = [states[0], *earlier, states[-1]]
        logits = [reference.mlm_logits(model, x[0]) for x in states]
    for one in logits:
        one[:, sorted(tokenizer.special_ids)] = -torch.inf
    return [one.softmax(1) for one in logits]


@pytest.mark.parametrize("changes", [{}, PRE, {"plan": SharingPlan.unshared(3)}, {"positions": "none"}])
def test_guesses_are_those_of_the_reference(changes: dict[str, Any], tokenizer: Tokenizer) -> None:
    model = chinese(tokenizer, **changes)
    found = lens(model, tokenizer, TEXT, depths=[0, 1, 2, 3])
    ids = tokenizer(TEXT)["input_ids"]
    masks = [i for i, token in enumerate(ids) if token == tokenizer.mask_id]
    assert [p.place for p in found.positions] == masks and found.layers == 3
    assert found.tokens[masks[0]] == "[MASK]" and found.right is None
    assert found.final_norm is ("norm" in changes)
    expected = probabilities(model, tokenizer, ids)
    for position in found.positions:
        assert position.answer is None and position.probability is None
        for depth, guesses in enumerate(position.guesses):
            best = expected[depth][position.place].topk(5)
            assert [g.token_id for g in guesses] == best.indices.tolist()
            assert [g.probability for g in guesses] == pytest.approx(best.values.tolist(), rel=1e-3)
            assert guesses[0].token == tokenizer.id_to_piece(guesses[0].token_id)


@pytest.mark.parametrize("changes", [{}, PRE, PRE | {"embedding_norm": False}])
def test_beyond_its_layers_it_is_a_model_converted_to_that_depth(
    changes: dict[str, Any], tokenizer: Tokenizer
) -> None:
    model = chinese(tokenizer, SharingPlan.shared(3), **changes)
    assert max_depth(model) == 12
    found = lens(model, tokenizer, TEXT, depths=range(1, 13))
    for depth in (1, 2, 5, 12):
        deeper = replan(model, SharingPlan.shared(depth))
        (guesses,), _ = fill_masks(deeper, tokenizer, [TEXT], 5, "model")
        for position, right in zip(found.positions, guesses, strict=True):
            mine = position.guesses[depth - 1]
            assert [g.token for g in mine] == [g.token for g in right]
            assert [g.probability for g in mine] == pytest.approx([g.probability for g in right], rel=1e-3)


def test_without_masks_every_token_is_masked_alone(tokenizer: Tokenizer) -> None:
    model, text = chinese(tokenizer), "今天天气很好。"
    found = lens(model, tokenizer, text, top=1)
    ids = tokenizer(text)["input_ids"]
    assert [p.place for p in found.positions] == list(range(1, len(ids) - 1))
    assert found.depths == list(range(7)) and found.layers == 3
    for position in found.positions:
        place = position.place
        row = [*ids[:place], tokenizer.mask_id, *ids[place + 1 :]]
        expected = probabilities(model, tokenizer, row)
        assert position.answer == tokenizer.id_to_piece(ids[place])
        assert position.probability[:4] == pytest.approx(
            [float(p[place, ids[place]]) for p in expected], rel=1e-3
        )
    rights = [[p.guesses[d][0].token == p.answer for p in found.positions] for d in range(7)]
    assert found.right == pytest.approx([np.mean(own) for own in rights])
    some = lens(model, tokenizer, text, places=[3, 1])
    assert [p.place for p in some.positions] == [1, 3]
    assert some.positions[0].probability == pytest.approx(found.positions[0].probability, rel=1e-4)


def test_a_token_beside_masks(tokenizer: Tokenizer) -> None:
    found = lens(chinese(tokenizer), tokenizer, TEXT, places=[1, 3])
    assert [(p.place, p.answer) for p in found.positions] == [(1, "今"), (3, None)]


def test_where_the_answer_is_stable(tokenizer: Tokenizer) -> None:
    model = chinese(tokenizer, SharingPlan.shared(4), initializer_range=0.6)
    found = lens(model, tokenizer, "今天天气很好，我们去公园。", depths=range(17))
    changed = 0
    for position in found.positions:
        best = [guesses[0].token for guesses in position.guesses]
        first, last = position.stable
        assert first <= 4 <= last and {*best[first : last + 1]} == {best[4]}
        assert first == 0 or best[first - 1] != best[4]
        assert last == 16 or best[last + 1] != best[4]
        changed += first > 0 or last < 16
    assert changed  # which is what is tested here


def test_depths_by_the_kind_of_loop(tokenizer: Tokenizer) -> None:
    shared = SharingPlan.shared(3)
    for model, most in (
        (chinese(tokenizer, shared), 12),
        (chinese(tokenizer, shared, step_signal="learned"), 3),
        (chinese(tokenizer, SharingPlan.grouped(4, 2)), 4),
        (chinese(tokenizer, SharingPlan((0, 0), (0, 0), own=("norms",))), 2),
        (universal(vocab_size=tokenizer.vocab_size), 6),
        (chinese(tokenizer, SharingPlan.shared(1), norm="pre"), 1),
    ):
        assert max_depth(model) == most
        found = lens(model, tokenizer, TEXT, depths=[most])
        assert len(found.positions[0].guesses) == 1
        with pytest.raises(SettingsError, match=f"depth {most + 1} is outside 0 to {most}"):
            lens(model, tokenizer, TEXT, depths=[most + 1])
    halting = universal(vocab_size=tokenizer.vocab_size)
    found = lens(halting, tokenizer, TEXT)
    (guesses,), _ = fill_masks(halting, tokenizer, [TEXT], 5, "model")
    assert [g.token for g in found.positions[0].guesses[6]] == [g.token for g in guesses[0]]


def test_a_fixed_point_is_approached(tokenizer: Tokenizer) -> None:
    """Depth d is d evaluations of the block from zero."""
    how = {"solver": "anderson", "input_injection": True, "initializer_range": 0.2, "tolerance": 1e-5}
    model = chinese(tokenizer, SharingPlan.shared(20), **how)
    found = lens(model, tokenizer, TEXT, depths=[3, 80], top=3)
    ids = torch.tensor(tokenizer(TEXT)["input_ids"])
    (solved,), _ = fill_masks(model, tokenizer, [TEXT], 3, "model")
    for position, right in zip(found.positions, solved, strict=True):
        state = reference.fixed_point(model, ids, torch.zeros_like(ids), 3)
        logits = reference.mlm_logits(model, state[position.place])
        logits[sorted(tokenizer.special_ids)] = -torch.inf
        best = logits.softmax(0).topk(3)
        assert [g.probability for g in position.guesses[0]] == pytest.approx(best.values.tolist(), rel=1e-3)
        assert [g.probability for g in position.guesses[1]] == pytest.approx(
            [g.probability for g in right], rel=1e-2
        )


def test_what_has_no_lens_is_refused(tokenizer: Tokenizer) -> None:
    config = builders.config(vocab_size=tokenizer.vocab_size)
    for model, message in (
        (Model(config, {"pooler"}), r"no masked-LM head\. Use a pretrained model, not a fine-tuned one"),
        (Model(config, {"lm"}), r"not trained with \[MASK\]"),
    ):
        with pytest.raises(ModelError, match=message):
            lens(model.eval(), tokenizer, TEXT)
    model = chinese(tokenizer)
    with pytest.raises(DataError, match="there is no text"):
        lens(model, tokenizer, "")
    with pytest.raises(DataError, match="has 42 tokens with special ones, and the model reads 32"):
        lens(model, tokenizer, "天" * 40)
    with pytest.raises(SettingsError, match="there is no depth"):
        lens(model, tokenizer, TEXT, depths=[])
    with pytest.raises(SettingsError, match=r"depth 1\.5 is outside"):
        lens(model, tokenizer, TEXT, depths=[1.5])
    with pytest.raises(SettingsError, match="there is no token 99: those of the text are 0 to"):
        lens(model, tokenizer, TEXT, places=[99])
    with pytest.raises(SettingsError, match="top is a whole number from 1"):
        lens(model, tokenizer, TEXT, top=0)
    with pytest.raises(DataError, match="no token of the text is in the vocabulary"):
        lens(model, tokenizer, "[UNK]")


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    package.save(chinese(tokenizer, SharingPlan.shared(3)), tokenizer, tmp_path / "deep")
    return tmp_path / "deep"


@pytest.mark.pictures
def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, page = tmp_path / "lens.svg", tmp_path / "lens.html"
    arguments = ["analyze", "lens", str(folder), TEXT]
    assert run([*arguments, "--json", "--plot", str(picture), "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found == {"model": "deep", **package.analyze.lens(folder, TEXT).as_dict()}
    best = found["positions"][0]["guesses"][3][0]
    for written in (picture.read_text(encoding="utf-8"), page.read_text(encoding="utf-8")):
        assert best["token"] in written
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert f"{best['token']} {best['probability']:.2f}" in out and "3 (model)" in out
    assert "The model has 3 layers; larger depths repeat its block." in out


@pytest.mark.pictures
def test_the_command_for_a_text_without_masks(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "lens.html"
    text = "今天天气很好。"
    assert run(["analyze", "lens", str(folder), text, "--depths", "4", "--html", str(page)]) == 0
    out = capsys.readouterr().out
    found = package.analyze.lens(folder, text, depths=range(5))
    assert "share right" in out and f"{found.positions[0].probability[4]:.2f}" in out
    assert "Right tokens" in page.read_text(encoding="utf-8")
    assert run(["analyze", "lens", str(folder), text, "--token", "2"]) == 0
    assert "token 2: 天" in capsys.readouterr().out


def test_the_command_refuses_with_a_remedy(
    folder: Path, tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    config = builders.config(vocab_size=tokenizer.vocab_size)
    package.save(Model(config, {"pooler"}), tokenizer, tmp_path / "no head")
    assert run(["analyze", "lens", str(tmp_path / "no head"), TEXT]) == 2
    assert "no masked-LM head. Use a pretrained model" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert run(["analyze", "lens", str(folder), TEXT, "--plot", str(tmp_path / "file" / "x.png")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert run(["analyze", "lens", str(folder), ""]) == 2
    assert "give a text" in capsys.readouterr().err
    assert run(["analyze", "lens", str(folder), TEXT, "--depths", "99"]) == 2
    assert "is outside 0 to 12" in capsys.readouterr().err
