"""A run with a teacher: what it begins with, that it is the same run after a kill, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import albertine
from albertine.core.settings import dump
from albertine.corpus.reader import Corpus
from albertine.errors import AlbertineError, CheckpointError, ModelError, RunError, SettingsError
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.interop.tensorflow.checkpoints import save_checkpoint
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.objectives.distillation import DistillationWeights
from albertine.pretraining.distillation_settings import distillation_settings
from albertine.pretraining.initial_model import encoder_config
from albertine.pretraining.run import pretrain
from albertine.pretraining.settings import (
    Distillation,
    ModelChoice,
    PretrainingSettings,
    Student,
    TrainingChoice,
)
from albertine.pretraining.student import kept_depths, student_config, student_of
from albertine.pretraining.teacher import Teacher
from albertine.tokenizers.load import load_tokenizer
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from tests.pretraining.conftest import Build
from tests.toy import MODEL, toy_vocabulary

DEPTH = 4


def teacher_of(
    corpus: Path, folder: Path, *, seed: int = 5, heads: tuple[str, ...] = ("mlm", "sop"), **changes: Any
) -> Path:
    shape: dict[str, Any] = {
        "embedding_size": 8,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
        "plan": SharingPlan.unshared(DEPTH),
        "positions": "rotary",
    }
    config = EncoderConfig(vocab_size=Corpus(corpus).tokenizer().vocab_size, **shape | changes)
    save_model(Model(config, heads, seed=seed), Corpus(corpus).tokenizer(), folder)
    return folder


@pytest.fixture(scope="module")
def teacher(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teacher_of(corpus, tmp_path_factory.mktemp("teacher") / "teacher")


def taught(build: Build, teacher: Path, name: str = "toy", **changes: Any) -> PretrainingSettings:
    student = {"depth": 2, **changes.pop("student", {})}
    model = {"preset": None, "change": {}, "start_from": teacher, "student": student}
    objective = {"distillation": {"teacher": teacher, **changes.pop("distillation", {})}}
    return build(**{"name": name, "model": model, "objective": objective, **changes})


def run(settings: PretrainingSettings, resume: str | Path = "auto") -> Path:
    result = pretrain(settings, resume=resume, reporter=Reporter(quiet=True))
    assert result.outcome.done
    return result.folder


def test_a_run_saves_a_student_and_records_its_teacher(build: Build, teacher: Path) -> None:
    before = hashlib.sha256((teacher / "model.safetensors").read_bytes()).hexdigest()
    folder = run(taught(build, teacher, student={"hidden_size": 24}, training={"steps": 12}))
    student = load_model(folder / "final")
    assert (student.config.num_hidden_layers, student.config.hidden_size) == (2, 24)
    assert not any(
        "map" in name and "mapping" not in name for name in load_file(folder / "final" / "model.safetensors")
    )
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "evaluation" not in row]
    for row in rows:
        assert {"soft_loss", "agreement", "hidden_loss", "attention_loss", "mlm_loss"} <= row.keys()
        assert not {"hidden_accuracy", "attention_accuracy", "soft_accuracy"} & row.keys()
    assert rows[-1]["hidden_loss"] < rows[0]["hidden_loss"]
    record = json.loads((folder / "teacher.json").read_text())
    assert record["num_hidden_layers"] == DEPTH and len(record["sha256"]) == 64
    assert hashlib.sha256((teacher / "model.safetensors").read_bytes()).hexdigest() == before


@pytest.mark.matrix
def test_a_killed_run_is_the_same_run(build: Build, teacher: Path, tmp_path: Path) -> None:
    """With maps that are trained, in another process that is killed without a word after a checkpoint."""
    changes: dict[str, Any] = {"student": {"hidden_size": 24}, "training": {"steps": 24}}
    straight = run(taught(build, teacher, "straight", **changes))
    settings = taught(build, teacher, "killed", **changes)
    (tmp_path / "run.yaml").write_text(dump(settings), encoding="utf-8")
    words = ["pretrain", f"--config={tmp_path / 'run.yaml'}"]
    process = subprocess.Popen([sys.executable, "-m", "albertine", *words], stdout=subprocess.DEVNULL)
    checkpoint, since = settings.folder / "checkpoints" / "step-3", time.monotonic()
    while not checkpoint.is_dir():
        assert process.poll() is None and time.monotonic() - since < 120
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and not (settings.folder / "final").is_dir()
    names = set(load_file(checkpoint / "model.safetensors"))
    assert {"maps.0.weight", "student.encoder.embeddings.word.weight"} <= names
    killed = run(settings)
    both = [load_file(folder / "final" / "model.safetensors") for folder in (straight, killed)]
    assert both[0].keys() == both[1].keys()
    for name, tensor in both[0].items():
        assert torch.equal(tensor, both[1][name]), name


def test_a_record_of_the_teacher_that_cannot_be_written_is_reported(teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="gone: cannot be written"):
        Teacher("a name", load_model(teacher)).write(tmp_path / "gone")


def test_another_teacher_is_refused_by_a_resumed_run(
    build: Build, corpus: Path, teacher: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    teacher_of(corpus, own)
    settings = taught(build, teacher, distillation={"teacher": own})
    folder = run(settings)
    record = (folder / "teacher.json").read_bytes()
    teacher_of(corpus, own, seed=6)  # other weights at the same place
    longer = taught(build, teacher, distillation={"teacher": own})
    with pytest.raises(CheckpointError, match=r"objective\.distillation\.teacher: checkpoint \w{10}"):
        pretrain(longer, reporter=Reporter(quiet=True))
    assert (folder / "teacher.json").read_bytes() == record
    # The same weights elsewhere are the same teacher.
    elsewhere = teacher_of(corpus, tmp_path / "elsewhere")
    assert run(taught(build, teacher, distillation={"teacher": elsewhere})) == folder


def test_a_teacher_of_another_vocabulary_is_refused(build: Build, teacher: Path, tmp_path: Path) -> None:
    config = load_model(teacher).config
    _, vocabulary = toy_vocabulary(tmp_path / "other", 60_000)
    stranger = tmp_path / "stranger"
    save_model(Model(config, {"mlm", "sop"}), load_tokenizer(vocabulary), stranger)
    with pytest.raises(ModelError, match=r"another vocabulary than the corpus.*--tokenizer"):
        pretrain(taught(build, teacher, distillation={"teacher": stranger}), reporter=Reporter(quiet=True))
    assert not taught(build, teacher).folder.exists()


def test_a_teacher_without_a_masked_lm_head_is_refused(
    build: Build, corpus: Path, teacher: Path, tmp_path: Path
) -> None:
    dumb = teacher_of(corpus, tmp_path / "dumb", heads=("pooler",))
    with pytest.raises(ModelError, match=r"no masked-LM head.*objective\.distillation\.soft=0"):
        pretrain(taught(build, teacher, distillation={"teacher": dumb}), reporter=Reporter(quiet=True))


@pytest.mark.parametrize("kind", ["xlnet", "pooler"])
def test_a_teacher_without_a_masked_lm_head_teaches_by_its_states(
    build: Build, cls_last: Path, tmp_path: Path, kind: str
) -> None:
    """Its student, begun with its weights, learns the words from the text, with a head of its own."""
    shape = {"embedding_size": 32, "type_vocab_size": 3, "plan": SharingPlan.unshared(3), "summary": "last"}
    shape |= (
        {"positions": "relative", "embedding_norm": False} if kind == "xlnet" else {"positions": "learned"}
    )
    heads = ("lm",) if kind == "xlnet" else ("pooler",)
    teacher_of(cls_last, tmp_path / "silent", heads=heads, **shape)
    states = {"soft": 0, "hidden": 1, "attention": 0}
    settings = taught(
        build,
        tmp_path / "silent",
        student={"hidden_size": 24},
        training={"steps": 12},
        corpus=cls_last,
        objective={"pairs": "none", "distillation": {"teacher": tmp_path / "silent", **states}},
    )
    folder = run(settings)
    assert load_model(folder / "final").heads == {"mlm", "pooler"}
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "evaluation" not in row]
    assert rows[-1]["hidden_loss"] < rows[0]["hidden_loss"] and "soft_loss" not in rows[0]


def test_a_checkpoint_of_tensorflow_teaches_too(build: Build, corpus: Path, tmp_path: Path) -> None:
    """As its training left it: no config.json of ours, and one block for all depths."""
    config = EncoderConfig(
        vocab_size=Corpus(corpus).tokenizer().vocab_size,
        embedding_size=8,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        plan=SharingPlan.shared(3),
    )
    google = tmp_path / "google"
    save_checkpoint(Model(config, {"mlm", "sop"}, seed=2), Corpus(corpus).tokenizer(), google, "google")
    assert any(google.glob("*.index")) and not (google / "config.json").exists()
    folder = run(taught(build, google, training={"steps": 2}))
    student = load_model(folder / "final")
    assert student.config.plan == SharingPlan.shared(2)


@pytest.mark.parametrize("student", [False, True])
def test_a_number_of_depths_that_is_not_fixed(
    build: Build, corpus: Path, tmp_path: Path, student: bool
) -> None:
    """A preset learns from a teacher too; both need a fixed number of layers."""
    change = {**MODEL, "num_hidden_layers": 3}
    halting = {**change, "halting": "basic"}
    choice = ModelChoice(preset="albert-tiny-zh", change=change if student else halting)
    config = encoder_config(choice, Corpus(corpus).tokenizer().vocab_size, 32)
    save_model(Model(config, {"mlm", "sop"}), Corpus(corpus).tokenizer(), tmp_path / "other")
    settings = build(
        model={"change": halting if student else change},
        objective={"distillation": {"teacher": tmp_path / "other"}},
    )
    with pytest.raises(SettingsError, match="no fixed number of layers"):
        pretrain(settings, reporter=Reporter(quiet=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"student": {"depth": 2}}}, "model.start_from, which is not given"),
        ({"objective": {"distillation": {"teacher": "x"}, "memory": 8, "pairs": "none"}}, "single samples"),
        (
            {"objective": {"distillation": {"teacher": "x", "soft": 0, "hidden": 0, "attention": 0}}},
            "nothing is",
        ),
        (
            {
                "objective": {"distillation": {"teacher": "x"}, "pairs": "none"},
                "stages": [{"begin": 0, "causal": True}],
            },
            "distillation does not support",
        ),
        (
            {"objective": {"distillation": {"teacher": "x"}}, "stages": [{"begin": 0, "depth": 1}]},
            "distillation does not support",
        ),
    ],
)
def test_settings_that_make_no_sense(build: Build, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build(**changes)


def test_depths_that_are_kept() -> None:
    assert kept_depths(2, 4) == (0, 2) and kept_depths(3, 12) == (0, 4, 8)
    assert kept_depths(3, 3) == (0, 1, 2) and kept_depths(5, 2) == (0, 1, 0, 1, 0)


def test_first_weights_are_the_teachers_where_shapes_permit(teacher: Path) -> None:
    model = load_model(teacher)
    shallow = student_of(model, Student(depth=2), seed=1)
    assert shallow.config.plan == SharingPlan.unshared(2)
    old, new = model.state_dict(), shallow.state_dict()
    for name, tensor in new.items():
        source = name.replace(".1.", ".2.") if "attention.1" in name or "feed_forward.1" in name else name
        assert torch.equal(tensor, old[source]), name
    last = student_of(model, Student(depths=(1, 3)), seed=1).state_dict()
    assert torch.equal(last["encoder.attention.0.query.weight"], old["encoder.attention.1.query.weight"])
    one = student_of(model, Student(depth=2, sharing="all"), seed=1)
    assert one.config.plan == SharingPlan.shared(2)
    mean = (old["encoder.attention.0.query.weight"] + old["encoder.attention.2.query.weight"]) / 2
    torch.testing.assert_close(one.state_dict()["encoder.attention.0.query.weight"], mean)
    narrow = student_of(model, Student(depth=2, hidden_size=24), seed=1)
    same = [
        name for name, tensor in narrow.state_dict().items() if torch.equal(tensor, new.get(name, tensor[:0]))
    ]
    assert "encoder.embeddings.word.weight" in same and "mlm.bias" in same
    assert (
        "encoder.attention.0.query.weight" not in same and "encoder.feed_forward.0.intermediate.bias" in same
    )
    again = student_of(model, Student(depth=2, hidden_size=24), seed=1).state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in narrow.state_dict().items())


def test_a_student_as_wide_as_its_embeddings_has_no_map_to_begin_with(teacher: Path) -> None:
    """Catches: weights of the teacher looked for in the student by a name that it has not."""
    model = load_model(teacher)
    narrow = student_of(model, Student(hidden_size=model.config.embedding_size), seed=1)
    assert model.config.has_mapping and not narrow.config.has_mapping
    words = "encoder.embeddings.word.weight"
    assert torch.equal(narrow.state_dict()[words], model.state_dict()[words])


@pytest.mark.parametrize(
    "choice",
    [
        Student(depth=2),
        Student(depths=(1, 3), sharing="all", hidden_size=24, num_attention_heads=2),
        Student(depth=6, sharing="attention", embedding_size=8),
    ],
)
def test_the_configuration_of_a_student_needs_no_weights(teacher: Path, choice: Student) -> None:
    model = load_model(teacher)
    assert student_config(model.config, choice) == student_of(model, choice, seed=1).config


def test_a_shared_teacher_stays_shared(teacher: Path) -> None:
    config = load_model(teacher).config
    shared = Model(config.with_plan(SharingPlan((0, 0, 1, 1), (0, 0, 1, 1))), {"mlm"}, seed=1)
    assert student_of(shared, Student(depth=2), 1).config.plan == SharingPlan.unshared(2)
    assert student_of(shared, Student(depths=(0, 1)), 1).config.plan == SharingPlan.shared(2)
    with pytest.raises(SettingsError, match="names layer 4, and the model has 0 to 3"):
        student_of(shared, Student(depths=(0, 4)), 1)


@pytest.mark.parametrize(
    "loop", [{"halting": "basic"}, {"solver": "anderson", "input_injection": True, "norm": "post"}]
)
def test_the_error_of_unsupported_sharing_names_the_students_setting(
    teacher: Path, loop: dict[str, Any]
) -> None:
    """Catches: the remedy model.sharing, which is refused beside a model to start from."""
    config = replace(load_model(teacher).config, plan=SharingPlan.shared(DEPTH), **loop)
    assert student_config(config, Student(depth=2)).plan == SharingPlan.shared(2)
    with pytest.raises(SettingsError, match=r"^model\.student\.sharing: .* Set it to all, or leave it out$"):
        student_config(config, Student(depth=2, sharing="ffn"))


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_another_optimizer_has_its_published_rate(corpus: Path, teacher: Path, optimizer: str) -> None:
    def rate(*assignments: str) -> float:
        words = [f"training.optimizer={optimizer}", *assignments]
        return distillation_settings(teacher, corpus, assignments=words).training.rate

    batch = {"batch_size": 24, "steps": 1, "optimizer": optimizer}
    assert rate() == TrainingChoice.model_validate(batch).rate < 0.001
    assert rate("training.learning_rate=0.3") == 0.3


def _recipe(folder: Path) -> Path:
    """Two small steps."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        "training: {steps: 2, batch_size: 4, workers: 0}\nobjective: {max_length: 32}\n"
        "watching: {evaluate_sequences: 8, tensorboard: false}\n",
        encoding="utf-8",
    )
    return recipe


def test_a_few_words_are_a_run(corpus: Path, teacher: Path, tmp_path: Path) -> None:
    settings = distillation_settings(
        teacher, corpus, tmp_path / "runs" / "small", {"depth": 3, "sharing": None}
    )
    assert settings.folder == tmp_path / "runs" / "small"
    assert settings.model.student == Student(depth=3) and settings.objective.pairs == "sop"
    assert settings.objective.distillation is not None
    assert settings.objective.distillation.teacher == settings.model.start_from == teacher
    half = distillation_settings(teacher, corpus, assignments=["training.minutes=5", "seed=7"])
    assert half.model.student == Student(depth=2) and half.folder == Path("runs/teacher-student")
    assert (half.training.steps, half.training.minutes, half.seed) == (None, 5, 7)
    assert (half.training.optimizer, half.training.rate) == ("muon", 0.01)
    done = albertine.distill(teacher, corpus, tmp_path / "runs" / "small", config=_recipe(tmp_path), depth=1)
    assert done.outcome.step == 2 and load_model(done.folder / "final").config.num_hidden_layers == 1
    with pytest.raises(AlbertineError, match=r"objective\.distillation"):
        distillation_settings(teacher, corpus, assignments=["objective.distillation.hiden=2"])


def test_settings_of_lessons_are_the_lessons() -> None:
    given = {"soft": 0.1, "hidden": 0.2, "attention": 0.3, "temperature": 4.0}
    assert Distillation(teacher=Path("x"), **given).loss_weights == DistillationWeights(**given)


def test_a_student_of_no_depths_is_refused() -> None:
    with pytest.raises(ValueError, match="depths is empty"):
        Student(depths=())


def test_a_teacher_without_a_pooler_teaches(build: Build, corpus: Path, tmp_path: Path) -> None:
    """As transformers saves a masked LM."""
    plain = teacher_of(corpus, tmp_path / "plain", heads=("mlm",))
    assert load_model(plain).heads == {"mlm"}
    folder = run(taught(build, plain, objective={"pairs": "none", "distillation": {"teacher": plain}}))
    assert load_model(folder / "final").heads == {"mlm", "pooler"}
