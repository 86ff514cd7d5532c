"""Whole fine-tuning runs at toy size: they learn, they leave what they promise, transformers reads it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from albertine.core.batch import Packed, pack
from albertine.core.settings import resolve
from albertine.errors import (
    AlbertineError,
    CheckpointError,
    DataError,
    RunError,
    SettingsError,
    TokenizerError,
)
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.interop.weights import read_json
from albertine.model.model import Model
from albertine.model.resharing import with_layers
from albertine.model.sharing import SharingPlan
from albertine.pretraining.initial_model import encoder_config
from albertine.pretraining.settings import ModelChoice
from albertine.tasks.advice import advice
from albertine.tasks.classify import Classify, balanced
from albertine.tasks.family import loss
from albertine.tasks.finetune import FinetuneResult, TaskBatches, finetune
from albertine.tasks.initial_model import first_encoder, open_encoder, rates, tuned_config
from albertine.tasks.predictor import Predictor
from albertine.tasks.rescore import evaluate_run, open_run
from albertine.tasks.settings import FinetuneSettings, TuningChoice
from albertine.tasks.task_data import read_data
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.model import builders
from tests.tasks.conftest import Tune
from tests.toy import MODEL

TEXTS = ["the old man said good time", "he was never of the house"]


def run(settings: FinetuneSettings) -> FinetuneResult:
    result = finetune(settings, reporter=Reporter(quiet=True))
    assert result.outcome.done
    return result


def encoder(settings: FinetuneSettings) -> Model:
    return first_encoder(settings, open_encoder(settings)[0], frozenset({"pooler"}))


def test_a_run_learns_and_leaves_what_it_promises(tune: Tune) -> None:
    result = run(tune())
    assert result.scores["accuracy"] > 0.9
    assert result.scores["macro_f1"] > 0.9
    for name in ("settings.yaml", "metrics.jsonl", "scores.json", "predictions-dev.jsonl"):
        assert (result.folder / name).stat().st_size > 0, name
    lines = [json.loads(line) for line in (result.folder / "predictions-dev.jsonl").read_text().splitlines()]
    assert len(lines) == 100
    right = sum(line["prediction"] == line["label"] for line in lines) / 100
    assert right == pytest.approx(result.scores["accuracy"])
    assert all(sum(line["probabilities"].values()) == pytest.approx(1, abs=1e-4) for line in lines)
    best = Predictor(result.folder / "best", precision="float32").classify(TEXTS)
    assert [max(row, key=row.__getitem__) for row in best] == ["fine", "poor"]
    assert result.notes == ("train: 400 examples, 2 classes", "dev: 100 examples")


def test_a_refused_command_leaves_the_record_as_it_was(tune: Tune) -> None:
    folder = run(tune(training={"epochs": 1})).folder
    names = ("settings.yaml", "environment.json", "metrics.jsonl", "result.json", "scores.json")
    before = {name: (folder / name).read_bytes() for name in names}
    for changes, resume in (({"training": {"epochs": 2}}, "auto"), ({"seed": 7}, "auto"), ({}, "never")):
        with pytest.raises((CheckpointError, RunError)):
            finetune(tune(**changes), resume=resume, reporter=Reporter(quiet=True))
        assert {name: (folder / name).read_bytes() for name in names} == before


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ({}, "single_label_classification"),
        ({"label": "tags", "kind": "multi"}, "multi_label_classification"),
        ({"label": "points", "kind": "score"}, "regression"),
    ],
)
def test_transformers_computes_the_same(tune: Tune, task: dict[str, str], problem: str) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = run(tune(task={**task, "pair": "answer"}, training={"epochs": 1})).folder / "best"
    theirs = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert theirs.config.problem_type == problem
    tokenizer = AutoTokenizer.from_pretrained(folder)
    pairs = [(text, "yes, sir") for text in TEXTS]
    batch = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
    assert batch["token_type_ids"].sum() > 0
    with torch.no_grad():
        logits = theirs(**batch).logits
    ours = Predictor(folder, precision="float32").classify(pairs)
    if problem == "regression":
        expected = [{"score": value} for value in logits[:, 0].tolist()]
    else:
        values = logits.softmax(-1) if problem.startswith("single") else logits.sigmoid()
        names = [theirs.config.id2label[i] for i in range(values.shape[1])]
        expected = [dict(zip(names, row, strict=True)) for row in values.tolist()]
    for mine, wanted in zip(ours, expected, strict=True):
        assert mine == pytest.approx(wanted, abs=1e-5)


def test_scores_and_sets_are_learned_too(tune: Tune) -> None:
    points = run(tune(name="points", task={"label": "points", "kind": "score"}))
    assert points.scores["pearson"] > 0.9 and points.scores["spearman"] > 0.7
    many = run(tune(name="tags", task={"label": "tags", "kind": "multi"}, training={"epochs": 1}))
    assert 0 <= many.scores["micro_f1"] <= 1


def test_the_averaged_weights_are_judged_and_saved(tune: Tune) -> None:
    last, mean = (
        run(tune(name=f"ema {ema}", training={"epochs": 3, "ema": ema})).folder for ema in (0, 0.98)
    )
    assert json.loads((mean / "scores.json").read_text())["accuracy"] > 0.8
    weights = [load_model(folder / "final").state_dict() for folder in (last, mean)]
    assert not torch.equal(*(w["pooler.dense.weight"] for w in weights))
    scores = json.loads((mean / "scores.json").read_text())
    lines = [json.loads(line) for line in (mean / "predictions-dev.jsonl").read_text().splitlines()]
    found = Predictor(mean / "best", precision="float32").classify([TEXTS[0]] * 2)
    assert sum(x["prediction"] == x["label"] for x in lines) / 100 == pytest.approx(scores["accuracy"])
    assert found[0]["fine"] > 0.5


def test_muon_turns_the_matrices_of_the_blocks(tune: Tune) -> None:
    start = load_model(tune().encoder.folder).state_dict()
    name = "encoder.attention.0.value.weight"
    moved = {}
    for optimizer in ("adamw", "muon"):
        training = {"steps": 1, "learning_rate": 1e-3, "optimizer": optimizer, "weight_decay": 0, "warmup": 0}
        folder = run(tune(name=optimizer, training=training)).folder
        change = load_model(folder / "final").state_dict()[name] - start[name]
        moved[optimizer] = float(torch.linalg.matrix_norm(change, 2))
    # Muon's step has singular values of about the rate; AdamW's has entries of about it.
    assert 6e-4 < moved["muon"] < 1.3e-3
    assert moved["adamw"] > 3e-3


@pytest.mark.parametrize("unshare", ["all", "attention", "ffn"])
def test_unsharing_changes_nothing_before_the_first_step(tune: Tune, unshare: str) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    shared = encoder(tune())
    apart = encoder(tune(encoder={"unshare": unshare}))
    batch = tokenizer(TEXTS, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(shared(**batch).last_hidden_state, apart(**batch).last_hidden_state)
    counts = (apart.config.plan.num_attention_blocks, apart.config.plan.num_feed_forward_blocks)
    assert counts == {"all": (2, 2), "attention": (2, 1), "ffn": (1, 2)}[unshare]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("unshare", "counts"), [("all", (2, 2)), ("attention", (2, 1)), ("ffn", (1, 2))])
def test_groups_of_depths_get_copies(tune: Tune, unshare: str, counts: tuple[int, int]) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    shared = encoder(tune(encoder={"num_hidden_layers": 5}))
    apart = encoder(tune(encoder={"num_hidden_layers": 5, "unshare": unshare, "groups": 2}))
    plan = apart.config.plan
    assert (plan.num_attention_blocks, plan.num_feed_forward_blocks) == counts
    grouped = plan.attention if counts[0] == 2 else plan.feed_forward
    assert grouped == (0, 0, 0, 1, 1)
    batch = tokenizer(TEXTS, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(shared(**batch).last_hidden_state, apart(**batch).last_hidden_state)
    with pytest.raises(SettingsError, match=r"encoder\.groups"):
        tune(encoder={"groups": 2})
    with pytest.raises(SettingsError, match=r"do not fit 2 layers\. Set encoder\.groups to 2 at most"):
        encoder(tune(encoder={"unshare": "all", "groups": 3}))


@pytest.mark.parametrize("unshare", ["all", "attention", "ffn"])
def test_an_encoder_that_needs_one_block_names_what_to_leave_out(tune: Tune, unshare: str) -> None:
    """Catches: advice about groups, or about settings that a fine-tuning run has not."""
    settings = tune(encoder={"unshare": unshare})
    pretrained, _ = open_encoder(settings)
    config = replace(pretrained.config, halting="basic", step_signal="learned")
    model = Model(config, {"pooler"})
    with pytest.raises(SettingsError, match=rf"repeats one block.*Leave encoder\.unshare={unshare} out$"):
        first_encoder(settings, model, frozenset({"pooler"}))


@pytest.mark.parametrize("own", [{}, {"unshare": "share"}, {"unshare": "ffn", "groups": 2, "dropout": 0.2}])
def test_the_configuration_of_what_is_tuned_needs_no_weights(tune: Tune, own: dict[str, object]) -> None:
    for depth in (None, 5):
        settings = tune(encoder={**own, "num_hidden_layers": depth})
        expected = encoder(settings).config
        assert tuned_config(open_encoder(settings)[0].config, settings.encoder) == expected


def test_a_repeated_core_is_tuned_with_other_loops(tune: Tune) -> None:
    """Not cut before its coda."""
    settings = tune(encoder={"num_hidden_layers": 3})
    plan = replace(SharingPlan.looped(1, 1, 3, 1), own=("norms",))
    model = Model(open_encoder(settings)[0].config.with_plan(plan), {"sop"}, seed=3)
    found, expected = first_encoder(settings, model, frozenset({"pooler"})), with_layers(model, 3)
    assert found.config.plan == expected.config.plan == tuned_config(model.config, settings.encoder).plan
    state = expected.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in found.state_dict().items())
    with pytest.raises(SettingsError, match=r"encoder\.num_hidden_layers: 2 layers are no whole number"):
        first_encoder(tune(encoder={"num_hidden_layers": 2}), model, frozenset({"pooler"}))


def test_an_unshared_model_is_shared_again_and_the_difference_reported(tune: Tune) -> None:
    apart = run(tune(name="apart", encoder={"unshare": "all"}, training={"epochs": 1}))
    assert not any("start" in note for note in apart.notes)
    settings = tune(name="again", encoder={"folder": apart.folder / "best", "unshare": "share"})
    together, pretrained = encoder(settings), load_model(apart.folder / "best")
    assert together.config.plan == SharingPlan.shared(2)
    for name, value in together.encoder.named_parameters():
        if name.startswith(("attention.0", "feed_forward.0")):
            other = name.replace(".0.", ".1.", 1)
            parts = [dict(pretrained.encoder.named_parameters())[n] for n in (name, other)]
            torch.testing.assert_close(value, torch.stack(parts).mean(0))
    result = run(settings)
    assert result.scores["accuracy"] > 0.9
    assert any(note.startswith("start: shared again; from the mean the farthest") for note in result.notes)
    assert any("is left aside, though it is of the same task" in note for note in result.notes)
    with pytest.raises(SettingsError, match=r"cannot become one\. Choose encoder\.groups"):
        encoder(tune(encoder={"folder": apart.folder / "best", "unshare": "all", "groups": 1}))
    one = encoder(tune(encoder={"folder": apart.folder / "best", "unshare": "share", "num_hidden_layers": 1}))
    assert torch.equal(one.encoder.attention[0].query.weight, together.encoder.attention[0].query.weight)


def test_depth_is_a_setting(tune: Tune) -> None:
    deeper = encoder(tune(encoder={"num_hidden_layers": 5}))
    assert deeper.config.plan == SharingPlan.shared(5)
    both = encoder(tune(encoder={"num_hidden_layers": 3, "unshare": "all"}))
    assert both.config.plan == SharingPlan.unshared(3)


@pytest.mark.parametrize("unshare", ["no", "all", "share"])
def test_depths_keep_what_they_have_of_their_own(
    tune: Tune, tmp_path: Path, pretrained: Path, unshare: str
) -> None:
    config = load_model(pretrained).config
    plan = replace(config.plan, own=("norms", "injection"), low_rank=2)
    before = Model(config.with_plan(plan), {"mlm", "sop"}, seed=3)
    with torch.no_grad():
        for parameter in before.encoder.own.parameters():  # type: ignore[union-attr]
            parameter.add_(torch.randn(parameter.shape))
    save_model(before, load_tokenizer(pretrained), tmp_path / "own")
    after = encoder(tune(encoder={"folder": tmp_path / "own", "unshare": unshare}))
    assert (after.config.plan.own, after.config.plan.low_rank) == (plan.own, 2)
    batch = pack([[5, 6, 7], [8, 9]])
    with torch.no_grad():
        found, expected = (model.eval().encoder(batch).last_hidden for model in (after, before))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_tokenizer_that_could_not_be_saved_is_reported_before_training(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Tokenizer) -> None:
        raise TokenizerError("cannot be written")

    settings = tune()
    monkeypatch.setattr(type(load_tokenizer(settings.encoder.folder)), "check_can_save", refuse)
    with pytest.raises(TokenizerError, match="cannot be written"):
        run(settings)
    assert not settings.folder.exists()


def test_layer_wise_decay_of_the_rate(tune: Tune) -> None:
    rate = rates(SharingPlan.unshared(3), 0.5)
    assert rate("classifier.weight") == rate("base.pooler.dense.bias") == 1
    assert rate("base.encoder.attention.2.query.weight") == 1  # the paper's α^(24 - m) of layer m of 24
    assert rate("base.encoder.feed_forward.0.output.bias") == 0.25
    assert rate("base.encoder.embeddings.word.weight") == 0.125
    assert rates(SharingPlan.shared(3), 0.5)("base.encoder.attention.0.query.weight") == 1
    own = rates(replace(SharingPlan.shared(3), own=("norms",)), 0.5)
    assert own("base.encoder.own.0.attention.layer_norm.weight") == 0.25
    assert own("base.encoder.own.2.injection") == 1
    loop = rates(SharingPlan.shared(3), 0.5)
    assert loop("base.encoder.signals.position") == 0.125
    assert loop("base.encoder.injection.weight") == loop("base.encoder.final_norm.weight") == 1
    words = rates(SharingPlan.unshared(3), 0.5, embedding=8.0)
    assert words("base.encoder.embeddings.word.weight") == words("base.encoder.embeddings.mapping.bias") == 1
    assert words("base.encoder.embeddings.layer_norm.weight") == 0.125
    assert words("base.encoder.attention.2.query.weight") == words("classifier.weight") == 1.0
    # It is the step that shrinks, which Adam would undo if it were the gradient.
    before = encoder(tune())
    result = run(tune(training={"layer_decay": 0.01, "epochs": 0.5}))
    after = load_model(result.folder / "final")
    moved = {
        name: float((dict(after.named_parameters())[name] - value).abs().max())
        for name, value in before.named_parameters()
    }
    assert moved["encoder.embeddings.word.weight"] < 1e-5 < 1e-4 < moved["pooler.dense.weight"]


def test_the_stream_resumes_from_a_cursor_and_not_by_ranks(tune: Tune) -> None:
    settings = tune(training={"batch_size": 150})
    data = read_data(settings.task, load_tokenizer(settings.encoder.folder)).train

    def take(stream: TaskBatches, count: int) -> list[tuple[dict[str, int], list[int]]]:
        found = []
        for _, (cursor, batches) in zip(range(count), stream, strict=False):
            found.append((cursor, sorted(t for b in batches for t in b.packed.input_ids.tolist())))
        return found

    whole = take(TaskBatches(data, settings, None), 7)
    assert take(TaskBatches(data, settings, whole[3][0]), 3) == whole[4:]
    halves = [take(TaskBatches(data, settings, None, rank, 2), 3) for rank in range(2)]
    for i in range(3):
        assert sorted(halves[0][i][1] + halves[1][i][1]) == whole[i][1]
    assert [cursor["epoch"] for cursor, _ in whole] == [0, 0, 0, 1, 1, 1, 2]
    first, second = (sorted(t for _, ids in whole[i : i + 3] for t in ids) for i in (0, 3))
    assert first == second and whole[0][1] != whole[3][1], "every epoch has all examples in its own order"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("ema", "pooling", "optimizer"),
    [(0, "cls", "adamw"), (0.9, "cls", "adamw"), (0.9, "mean", "adamw"), (0, "mean", "muon")],
)
def test_an_interrupted_run_ends_like_an_uninterrupted_one(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, ema: float, pooling: str, optimizer: str
) -> None:
    from albertine.tasks import finetune as module

    changes = {"training": {"epochs": 2, "ema": ema, "optimizer": optimizer}, "task": {"pooling": pooling}}
    whole = run(tune(name="whole", **changes)).folder
    settings, plain, calls = tune(name="cut", **changes), module.loss, 0

    def failing(*arguments: object) -> object:
        inner = plain(*arguments)  # type: ignore[arg-type]

        def part(*inputs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == 90:
                raise KeyError("the machine fell over")
            return inner(*inputs)  # type: ignore[arg-type]

        return part

    monkeypatch.setattr(module, "loss", failing)
    with pytest.raises(KeyError):
        finetune(settings, reporter=Reporter(quiet=True))
    monkeypatch.setattr(module, "loss", plain)
    cut = run(settings).folder
    for name in ("best", "final"):
        ours, theirs = ((f / name / "model.safetensors").read_bytes() for f in (cut, whole))
        assert ours == theirs, name


def test_long_texts_are_cut_and_counted(tune: Tune) -> None:
    settings = tune(task={"max_length": 8})
    data = read_data(settings.task, load_tokenizer(settings.encoder.folder))
    assert "cut to 8 tokens" in data.notes[0]
    assert data.train.lengths.max() == 8


def test_some_of_the_examples(tune: Tune) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    whole, some, again = (read_data(tune(task={"examples": n}).task, tokenizer) for n in (None, 3, 3))
    assert [len(d.train.examples) for d in (whole, some, again)] == [400, 3, 3]
    assert some.train.examples == again.train.examples
    places = [whole.train.examples.index(e) for e in some.train.examples]
    assert places == sorted(places) != [0, 1, 2]
    assert some.family.labels == whole.family.labels and len(some.dev.examples) == 100  # type: ignore[union-attr]


def test_what_does_not_fit_is_refused(tune: Tune, tables: dict[str, Path], tmp_path: Path) -> None:
    strange = tmp_path / "dev.csv"
    strange.write_text(tables["dev"].read_text().replace("poor", "awful", 1))
    with pytest.raises(DataError, match=r"dev\.csv:\d+: has the class `awful`.*Known: fine, poor"):
        run(tune(task={"dev": strange}))
    with pytest.raises(SettingsError, match=r"task\.max_length 900 is more than"):
        run(tune(task={"max_length": 900}))
    with pytest.raises(DataError, match="has no column `text`"):
        run(tune(task={"text": "text"}))
    (tmp_path / "equal.csv").write_text("review,points\nold,2.5\nman,2.5\n")
    with pytest.raises(DataError, match=r"equal\.csv: has only the score 2.5. Check task\.label"):
        run(tune(task={"train": tmp_path / "equal.csv", "label": "points", "kind": "score"}))
    for task in ({"dataset": "tnews"}, {"folder": tmp_path}, {"train": None}, {"train": None, "dev": None}):
        with pytest.raises(AlbertineError, match=r"task"):
            run(tune(task=task))


LONG = " ".join(["the old man said"] * 40)
KINDS: dict[str, list[dict[str, object]]] = {
    "single": [{"text": LONG, "label": "x"}, {"text": "he was", "label": "y"}],
    "multi": [{"text": LONG, "label": ["x"]}, {"text": "he was", "label": ["x", "y"]}],
    "score": [{"text": LONG, "label": 1}, {"text": "he was", "label": 2}],
    "choice": [{"text": LONG, "options": ["the man", "he"], "label": 0}],
    "entities": [{"text": LONG, "label": [["x", 4, 7]]}],
    "relations": [{"text": LONG, "label": [["old", "is", "man"]]}],
    "similarity": [{"text": LONG, "pair": "old", "label": 1}, {"text": "he", "pair": "was", "label": 0}],
    "answers": [
        {"context": LONG, "question": LONG, "answers": {"text": ["old man"], "answer_start": [4]}},
        {"context": LONG, "question": "he", "answers": {"text": ["man"], "answer_start": [8]}},
    ],
    "reading": [{"context": LONG, "question": LONG, "answers": {"text": ["old man"], "answer_start": [4]}}],
    "generation": [{"text": LONG, "label": "the old man"}],
}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, pretrained: Path) -> Path:
    """An encoder of 64 positions."""
    folder, tokenizer = tmp_path_factory.mktemp("short") / "model", load_tokenizer(pretrained)
    choice = ModelChoice(preset="albert-tiny-zh", change={**MODEL, "max_position_embeddings": 64})
    model = Model(encoder_config(choice, tokenizer.vocab_size, 64), {"mlm", "sop"}, seed=3)
    save_model(model, tokenizer, folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_default_lengths_are_those_that_the_encoder_reads(short: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, KINDS[kind])))
    task = {"kind": kind, "train": file, "dev": file}
    task |= {"pair": "pair"} if kind == "similarity" else {}
    tree = {"name": "toy", "output": tmp_path, "task": task, "encoder": {"folder": short}}
    tree |= {"training": {"steps": 1}, "watching": {"report": False, "tensorboard": False}}
    done = run(resolve(FinetuneSettings, tree))
    assert "max_length: 64" in (done.folder / "settings.yaml").read_text()
    family = Predictor(done.model).family
    assert {"max_length": 64}.items() <= family.settings.items()
    assert evaluate_run(open_run(done.folder, []))[0].scores == {
        k: v for k, v in done.scores.items() if k != "step"
    }


def test_lengths_within_a_row_fit_a_short_one(tmp_path: Path) -> None:
    def lengths(kind: str, positions: int, **more: object) -> dict[str, object]:
        task = {"kind": kind, "train": tmp_path / "a.json", **more}
        tree = {"name": "a", "encoder": {"folder": "a"}, "task": task}
        return resolve(FinetuneSettings, tree).task.fitting(positions).model_dump()

    assert lengths("answers", 512)["max_length"] == 128
    assert lengths("answers", 512)["answer"]["question"] == 64  # type: ignore[index]
    assert lengths("answers", 64)["answer"]["question"] == 32  # type: ignore[index]
    given = lengths("answers", 64, answer={"question": 61}, max_length=80)
    assert (given["max_length"], given["answer"]["question"]) == (80, 61)  # type: ignore[index]
    assert [lengths("generation", n)["target_length"] for n in (64, 40, 32)] == [32, 32, 16]
    assert lengths("reading", 32, target_length=30)["target_length"] == 30


def test_encoding_lays_pairs_out_as_the_tokenizer_does(tune: Tune) -> None:
    settings = tune(task={"pair": "answer"})
    tokenizer = load_tokenizer(settings.encoder.folder)
    data = read_data(settings.task, tokenizer)
    for i in (0, 7):
        example = data.train.examples[i]
        wanted = tokenizer(example.text, example.pair, max_length=32)
        assert data.train.ids[i].tolist() == wanted["input_ids"]
        assert data.train.types[i].tolist() == wanted["token_type_ids"]
    none = data.family.encode(data.train.examples[:0], tokenizer)
    assert none.ids == []


def test_real_tasks_go_the_whole_way(tune: Tune, shared_data: Path, pretrained: Path, tmp_path: Path) -> None:
    """Every data set whose training file is there, a few steps at toy size on the real files."""
    for name, folder in (("rte", "glue/RTE"), ("sts-b", "glue/STS-B"), ("tnews", "tnews")):
        settings = tune(
            name=name,
            task={
                "train": None,
                "dev": None,
                "text": "text",
                "label": "label",
                "dataset": name,
                "folder": shared_data / folder,
            },
            training={"epochs": 0.01, "micro_batch_tokens": 16384},
            watching={"evaluations": 1},
        )
        result = run(settings)
        assert result.scores, name


def test_the_best_model_answers_the_test_file(tune: Tune, tables: dict[str, Path], tmp_path: Path) -> None:
    result = run(tune(task={"test": tables["dev"]}))
    assert result.test["accuracy"] == pytest.approx(result.scores["accuracy"])
    unlabelled = tmp_path / "test.jsonl"
    rows = [{"review": text, "verdict": "fine"} for text in TEXTS]
    unlabelled.write_text("\n".join(map(json.dumps, rows)))
    other = run(tune(name="other", task={"test": unlabelled}, training={"epochs": 1}))
    lines = (other.folder / "predictions-test.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["0", "1"]


def test_classes_can_weigh_the_same(tune: Tune, tables: dict[str, Path], tmp_path: Path) -> None:
    lines = tables["train"].read_text().splitlines()
    fine, rare = ([line for line in lines if word in line] for word in ("fine", "poor"))
    skewed = tmp_path / "skewed.csv"
    skewed.write_text("\n".join([lines[0], *fine[:90], *rare[:10]]))
    settings = tune(task={"train": skewed}, training={"epochs": 1, "class_weights": "balanced"})
    data = read_data(settings.task, load_tokenizer(settings.encoder.folder))
    weights = balanced(data.train, 2)
    assert weights.tolist() == pytest.approx([100 / 180, 100 / 20])  # each class sums to half of the examples
    names = ("fine", "poor")
    heavy, plain = (loss(Classify("single", names, (), 32, w)) for w in (weights, None))
    model, batch = _Same(), data.train.batch([0, 1, 99])
    assert batch.targets.tolist() == [0, 0, 1]
    ratio = heavy(model, batch)["task"].loss_sum / plain(model, batch)["task"].loss_sum  # type: ignore[arg-type]
    assert ratio.item() == pytest.approx((2 * 100 / 180 + 100 / 20) / 3)
    assert run(settings).scores.keys() == {"step", "accuracy", "macro_f1"}
    with pytest.raises(SettingsError, match=r"one class a text.*Leave it out"):
        kinds = {"label": "points", "kind": "score"}
        run(tune(name="no", task=kinds, training={"class_weights": "balanced"}))


class _Same:
    """Gives every class the same logit."""

    def __call__(self, packed: Packed) -> torch.Tensor:
        return torch.zeros(packed.num_sequences, 2)


def test_the_encoder_keeps_the_dropout_of_its_checkpoint(
    tune: Tune, pretrained: Path, tmp_path: Path
) -> None:
    before, tokenizer = open_encoder(tune())
    folder = tmp_path / "with dropout"
    config = replace(before.config, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2)
    save_model(Model(config, before.heads), tokenizer, folder)
    for choice, expected in ({}, (0.1, 0.2)), ({"dropout": 0.0}, (0, 0)), ({"dropout": 0.3}, (0.3, 0.3)):
        settings = tune(encoder={"folder": folder, **choice}, training={"steps": 1, "batch_size": 2})
        first = encoder(settings).config
        assert (first.hidden_dropout_prob, first.attention_probs_dropout_prob) == expected
    tuned = tune(encoder={"folder": folder}, training={"steps": 1, "batch_size": 2})
    folder = run(tuned).folder
    assert load_model(folder / "final").config == config
    state = json.loads((folder / "checkpoints" / "step-1" / "state.json").read_text())
    assert state["fingerprint"]["model"] == json.loads(
        json.dumps(config.non_default_dict())
    )  # without a format number


def test_the_fingerprint_has_the_values_that_settings_left_to_the_run(tune: Tune) -> None:
    for name, changes, pooling, whiten in (
        ("usual", {}, "cls", False),
        ("mean", {"task": {"pooling": "mean"}}, "mean", True),
        ("not whitened", {"training": {"whiten": False}, "task": {"pooling": "mean"}}, "mean", False),
    ):
        training = {**changes.pop("training", {}), "steps": 1}
        folder = run(tune(**changes, training=training, name=name)).folder
        state = json.loads((folder / "checkpoints" / "step-1" / "state.json").read_text())
        found = state["fingerprint"]
        assert found["pooling"] == pooling and found["metric"] == "accuracy"
        assert found["training"]["whiten"] is whiten and found["training"]["learning_rate"] > 0


def test_adversarial_training_learns_otherwise(tune: Tune) -> None:
    training = {"steps": 2, "warmup": 0}
    plain, *others = (
        load_model(run(tune(name=f"{x}", training={**training, "adversarial": x})).folder / "final")
        for x in (0, 0.5, 1)
    )
    moved = [
        plain.state_dict()["pooler.dense.weight"] - x.state_dict()["pooler.dense.weight"] for x in others
    ]
    assert all(float(difference.abs().max()) > 1e-4 for difference in moved)
    assert not torch.equal(*moved)


def test_known_problems_are_reported_before_training(tune: Tune, pretrained: Path, tmp_path: Path) -> None:
    assert advice(tune(), seeds=5) == []
    (few,) = advice(tune())
    assert "--seeds 5" in few
    many = tmp_path / "many.csv"
    many.write_text("review,verdict\n" + "a,b\n" * 10_000)
    assert advice(tune(task={"train": many})) == []
    tree = json.loads((pretrained / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(tree | {"hidden_size": 4096}))
    wide = tune(encoder={"folder": tmp_path}, training={"learning_rate": 2e-5})
    assert "0.000005" in advice(wide)[0]
    slow = wide.model_copy(update={"training": wide.training.model_copy(update={"learning_rate": 5e-6})})
    assert advice(slow, seeds=5) == []
    (tmp_path / "config.json").write_text(json.dumps(tree | {"hidden_dropout_prob": 0.0, "hidden_size": 768}))
    assert "without dropout" in advice(tune(encoder={"folder": tmp_path, "dropout": 0.1}))[0]
    race = {"train": None, "dev": None, "dataset": "race", "folder": tmp_path}
    fast = tune(encoder={"folder": tmp_path}, task=race, training={"learning_rate": 2e-5})
    assert "learning_rate=0.00001" in advice(fast)[0]
    slow = tune(encoder={"folder": tmp_path}, task=race, training={"learning_rate": 1e-5})
    assert advice(slow) == []
    score = {"train": None, "dev": None, "dataset": "sts-b", "folder": tmp_path}
    assert advice(tune(encoder={"folder": tmp_path}, task=score), seeds=5) == []  # 768 wide
    (compare,) = advice(tune(task=score), seeds=5)
    assert "task.kind=similarity" in compare
    (whiten,) = advice(tune(task={**score, "kind": "similarity"}), seeds=5)
    assert "task.similarity.pooling=whitened" in whiten
    for ways in ({"pooling": "whitened"}, {"loss": "contrastive"}):
        assert advice(tune(task={**score, "kind": "similarity", "similarity": ways}), seeds=5) == []
    own = {"train": many, "label": "verdict", "text": "review", "kind": "score"}
    assert advice(tune(task=own), seeds=5) == []
    assert "task.kind=similarity" in advice(tune(task={**own, "pair": "verdict"}), seeds=5)[0]
    pairs = {"train": many, "label": "verdict", "text": "review", "pair": "verdict"}
    assert "task.pooling=compared" in advice(tune(task=pairs), seeds=5)[0]
    assert advice(tune(task={**pairs, "pooling": "compared"}), seeds=5) == []
    (tmp_path / "config.json").write_text(json.dumps(tree | {"hidden_size": 768}))
    assert advice(tune(encoder={"folder": tmp_path}, task=pairs), seeds=5) == []
    small = tune(task={**race, "dataset": "rte"})
    assert "--seeds 5" in advice(small)[0] and advice(small, seeds=5) == []


def test_a_mean_over_an_alberts_tokens_is_no_head_of_transformers(tune: Tune) -> None:
    """transformers' class would load the folder too, and compute something else."""
    configs = [
        json.loads(
            (
                run(tune(name=str(p), task={"pooling": p}, training={"steps": 1})).folder
                / "final/config.json"
            ).read_text()
        )
        for p in (None, "mean")
    ]
    assert configs[0]["architectures"] == ["AlbertForSequenceClassification"]
    assert configs[1]["architectures"] == ["AlbertineForSequenceClassification"]
    assert configs[1]["albertine"]["pooling"] == "mean" and "id2label" not in configs[1]


@pytest.mark.parametrize(
    ("width", "rate"), [(1024, 2e-5), (768, 2e-5), (384, 1.6e-4), (256, 5e-4), (64, 5e-4)]
)
def test_a_narrow_model_has_a_higher_rate(width: int, rate: float) -> None:
    assert TuningChoice().rate(width) == pytest.approx(rate)
    assert TuningChoice(learning_rate=1e-5).rate(width) == 1e-5
    assert TuningChoice(optimizer="muon").rate(width) == 0.01


def test_the_rate_of_a_run_is_that_of_its_width(tune: Tune, tmp_path: Path) -> None:
    folder = run(tune(training={"steps": 40, "learning_rate": None}, watching={"log_every": 1})).folder
    rates = [json.loads(x).get("lr", 0.0) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    assert max(rates) == pytest.approx(5e-4, rel=0.1)
    assert any("hardly moves" in line for line in advice(tune(training={"learning_rate": 2e-5})))
    own = builders.model(SharingPlan.shared(3), positions="rotary")  # whose config.json has a form of ours
    save_model(own, None, tmp_path / "own")
    assert read_json(tmp_path / "own" / "config.json")["model_type"] == "albertine"
    narrow = tune(encoder={"folder": tmp_path / "own"}, training={"learning_rate": 2e-5})
    assert any("hardly moves" in line for line in advice(narrow))
    muon = {"optimizer": "muon", "learning_rate": 5e-4}
    assert any("0.01 with muon" in line for line in advice(tune(training=muon)))
    assert not any("hardly moves" in line for line in advice(tune(training={"learning_rate": None})))
