"""Shared again: the report, what is written, and that transformers reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from albertine.cli.app import run
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.interop.weights import read_json
from albertine.model.model import Model
from albertine.model.resharing import shared_again
from albertine.model.sharing import SharingPlan
from albertine.tasks.finetune import finetune
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.model import builders
from tests.tasks.conftest import Tune


def apart(seed: int = 3, **changes: object) -> Model:
    """Three depths of random weights, each its own."""
    return builders.model(SharingPlan.unshared(3), seed=seed, **changes)


@pytest.mark.parametrize("share", [[], ["--share"]])
def test_convert_keeps_what_a_task_needs_for_inference(
    pretrained: Path, tmp_path: Path, share: list[str]
) -> None:
    flags = {"task": "generate", "source_length": 20, "target_length": 12}
    model, tokenizer = load_model(pretrained), load_tokenizer(pretrained)
    save_model(model, tokenizer, tmp_path / "tuned", extra_config={"albertine": flags})
    assert run(["convert", str(tmp_path / "tuned"), str(tmp_path / "copy"), *share]) == 0
    before, after = (read_json(tmp_path / name / "config.json")["albertine"] for name in ("tuned", "copy"))
    assert before == after and flags.items() <= after.items()


@pytest.mark.parametrize("changes", [{}, {"embedding_size": 24}], ids=["albert", "bert"])
def test_convert_shares_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object]
) -> None:
    from transformers import AutoModel

    model = apart(**changes)
    save_model(model, None, tmp_path / "apart")
    assert run(["convert", str(tmp_path / "apart"), str(tmp_path / "one"), "--share"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    weights = [
        torch.cat([p.detach().double().flatten() for p in block.parameters()])
        for block in model.encoder.attention
    ]
    mean = sum(weights) / 3
    for depth, weight in enumerate(weights, 1):  # as in `info` and `analyze`
        row = next(line for line in lines if line[:1] == [str(depth)])
        assert float(row[1]) == pytest.approx(float((weight - mean).norm() / mean.norm()), abs=1e-4)
    ours = load_model(tmp_path / "one")
    assert ours.config.plan == SharingPlan.shared(3)
    theirs = AutoModel.from_pretrained(tmp_path / "one").eval()
    ids = torch.randint(1, 50, (2, 7), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        mine, other = ours(ids).last_hidden_state, theirs(input_ids=ids).last_hidden_state
    torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


def test_a_whitening_of_other_weights_is_dropped_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches: vectors that are not whitened any more, of a folder that states they are; and its loss where
    no weight changes."""
    one, two, flags = tmp_path / "one", tmp_path / "two", {"task": "embed", "pooling": "whitened"}
    save_model(apart(), None, tmp_path / "apart", extra_config={"albertine": flags})
    for source, target in ((tmp_path / "apart", one), (one, two)):
        (source / "whitening.safetensors").write_bytes(b"as it was")
        assert run(["convert", str(source), str(target), "--share"]) == 0
        output, recorded = capsys.readouterr().out, read_json(target / "config.json").get("albertine", {})
        assert ("Left out: whitening.safetensors, of the weights before. --whiten" in output) == (
            target == one
        )
        assert (target / "whitening.safetensors").exists() == (target == two)
        assert recorded.get("pooling") is None


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_the_weights_of_a_module_go_along_in_either_form(tmp_path: Path, weights: str) -> None:
    """A folder that names a module whose weights it lacks is no model of sentence-transformers."""
    kinds = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds)
    ]
    save_model(apart(), None, tmp_path / "theirs")
    (tmp_path / "theirs" / "modules.json").write_text(json.dumps(modules))
    for part in ("1_Pooling", "2_Dense"):
        (tmp_path / "theirs" / part).mkdir()
        (tmp_path / "theirs" / part / "config.json").write_text("{}")
    (tmp_path / "theirs" / "2_Dense" / weights).write_bytes(b"its weights")
    assert run(["convert", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    assert (tmp_path / "ours" / "2_Dense" / weights).read_bytes() == b"its weights"


def test_a_tuned_model_keeps_its_head(tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoModelForSequenceClassification

    settings = tune(encoder={"unshare": "all"}, training={"learning_rate": 0.0003})
    folder = finetune(settings, reporter=Reporter(quiet=True)).folder / "best"
    sample = tmp_path / "sample.txt"
    sample.write_text("the old man said good time\n\nhe was never of the house\n")
    assert run(["convert", str(folder), str(tmp_path / "one"), "--share", "--sample", str(sample)]) == 0
    output = capsys.readouterr().out
    assert "Outputs on 2 lines change by 0." in output and "0.0000 of" not in output
    text = "the old man said good time"
    found = Predictor(tmp_path / "one", precision="float32").classify([text])[0]
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "one").eval()
    assert set(theirs.config.label2id) == set(found) == {"fine", "poor"}
    with torch.no_grad():
        logits = theirs(**load_tokenizer(folder)([text], return_tensors="pt")).logits
    assert list(found.values()) == pytest.approx(logits.softmax(-1)[0].tolist(), abs=1e-5)
    assert run(["convert", str(folder), str(tmp_path / "two"), "--sample", str(sample)]) == 2
    assert "--share" in capsys.readouterr().err
    sample.write_text("\n")
    assert run(["convert", str(folder), str(tmp_path / "two"), "--share", "--sample", str(sample)]) == 2


def test_a_bert_with_a_head_becomes_an_albert_with_it(tmp_path: Path) -> None:
    model = apart(embedding_size=24)
    head = {"classifier.weight": torch.randn(2, 24), "classifier.bias": torch.zeros(2)}
    extra_config = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b"}}
    save_model(model, None, tmp_path / "bert", extra_tensors=head, extra_config=extra_config)
    assert run(["convert", str(tmp_path / "bert"), str(tmp_path / "one"), "--share"]) == 0
    from transformers import AlbertForSequenceClassification, AutoConfig

    assert AutoConfig.from_pretrained(tmp_path / "one").architectures == ["AlbertForSequenceClassification"]
    theirs = AlbertForSequenceClassification.from_pretrained(tmp_path / "one")
    assert torch.equal(theirs.classifier.weight, head["classifier.weight"])


def test_depths_weigh_the_same_however_blocks_are_used() -> None:
    model = builders.model(SharingPlan((0, 0, 1), (0, 1, 1)), seed=3)
    query = [block.query.weight for block in model.encoder.attention]  # type: ignore[union-attr]
    mean = shared_again(model).encoder.attention[0].query.weight  # type: ignore[union-attr]
    torch.testing.assert_close(mean, (2 * query[0] + query[1]) / 3)
