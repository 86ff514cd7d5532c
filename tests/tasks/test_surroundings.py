"""Side effects of a call from Python on the calling program and on the disk: only requested ones."""

from __future__ import annotations

import datetime
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import albertine
from albertine.core.number_formats import InferencePrecision
from albertine.errors import AlbertineError, CheckpointError, DataError, RunError
from albertine.training import loop
from albertine.training.progress import Reporter

QUIET = Reporter(quiet=True)
FAST: dict[str, Any] = {"watching": {"tensorboard": False, "report": False}, "reporter": QUIET}
ROWS = [{"text": text, "label": label} for text, label in (("a good man", "x"), ("a house", "y"))] * 4


def tuned(encoder: Path, where: Path, rows: Any = ROWS, **more: Any) -> Any:
    steps = {"steps": 2, **more.pop("training", {})}
    return albertine.finetune(encoder, train=rows, output=where, **{**FAST, "training": steps, **more})


@pytest.fixture
def kept() -> Iterator[None]:
    """The torch state of the other tests, whatever a test here does."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


@pytest.mark.usefixtures("kept")
def test_what_a_program_set_of_torch_stays(pretrained: Path, tmp_path: Path) -> None:
    """Its random state, its default format, its threads; and neither these nor `no_grad` nor `autocast`
    change a run."""
    exact = {"precision": "float32"}
    plain = tuned(pretrained, tmp_path / "plain", training=exact)
    torch.manual_seed(5)
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    wanted = torch.get_rng_state()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        other = tuned(pretrained, tmp_path / "other", training={**exact, "threads": 1})
    predictor = albertine.Predictor(other.model)
    predictor.classify(["a good man"])
    assert torch.equal(torch.get_rng_state(), wanted)
    assert torch.get_num_threads() == 2 and torch.get_default_dtype() == torch.float64
    one, two = (run.model.joinpath("model.safetensors").read_bytes() for run in (plain, other))
    assert one == two


@pytest.mark.sample(1)
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.usefixtures("kept")
def test_a_default_device_is_the_program_s_own(
    pretrained: Path, tmp_path: Path, precision: InferencePrecision
) -> None:
    """On "meta" a tensor holds no numbers: what is made there by default answers wrongly or not at all."""

    def answers_on(where: Path) -> list[Any]:
        exact: Any = {"precision": "float32"}
        model = tuned(pretrained, where, dev=ROWS[:2], training=exact).model
        predictor = albertine.Predictor(model, precision=precision)
        bare = albertine.load(model)
        bare.precision = precision
        with torch.inference_mode():
            states = bare(torch.ones(1, 3, dtype=torch.int64, device="cpu")).last_hidden_state
        return [
            model.joinpath("model.safetensors").read_bytes(),
            albertine.evaluate(model, file=ROWS),
            predictor.classify(["a good man", "a house with many rooms"]),
            predictor.embed(["a good man", "a house"]).tolist(),
            albertine.Predictor(pretrained, precision=precision).fill_mask("a [MASK] man"),
            states.tolist(),
        ]

    wanted = answers_on(tmp_path / "plain")
    torch.set_default_device("meta")
    assert answers_on(tmp_path / "other") == wanted
    assert torch.get_default_device().type == "meta"


def test_a_refused_call_leaves_nothing(pretrained: Path, tmp_path: Path) -> None:
    """Nor does it delete the files of an earlier one."""
    for wrong in (
        {"training": {"step": 2}},
        {"task": {"label": "verdict"}},
        {"rows": [*ROWS, {"text": "a", "label": None}]},
        {"name": "a/b"},
        {"dev": [{"text": "a", "label": "z"}, {"text": b"a"}]},
    ):
        with pytest.raises(AlbertineError):
            tuned(pretrained, tmp_path / "new", **wrong)
        assert not list((tmp_path / "new").rglob("*"))
    first = tuned(pretrained, tmp_path)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError):
        tuned(pretrained, tmp_path, ROWS[:6])
    assert sorted(tmp_path.rglob("*")) == files
    assert tuned(pretrained, tmp_path).scores == first.scores


def test_a_folder_that_cannot_be_written_is_named(pretrained: Path, tmp_path: Path) -> None:
    """Catches: `train: cannot be written`, wherever that may be."""
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RunError, match=f"^{tmp_path}/runs/.*: cannot be written"):
        tuned(pretrained, tmp_path / "runs")


def test_what_a_run_that_broke_learned_from_stays(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It resumes with that."""

    def broken(*args: Any, **options: Any) -> Any:
        raise RunError("the loss is not finite")

    monkeypatch.setattr(loop, "train_step", broken)
    with pytest.raises(RunError):
        tuned(pretrained, tmp_path)
    assert len(list((tmp_path / "finetune" / "data").iterdir())) == 1


def test_a_row_is_named_by_its_place_in_memory(pretrained: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^train\[1\]: `label` is missing or empty"):
        tuned(pretrained, tmp_path, [ROWS[0], {"text": "a", "label": None}])
    with pytest.raises(DataError, match=r"^train: has only the class `x`"):
        tuned(pretrained, tmp_path, ROWS[:1])
    run = tuned(pretrained, tmp_path)
    with pytest.raises(DataError, match=r"^test\[2\]: has the class `new`, which is not known"):
        albertine.evaluate(run.folder, file=[*ROWS[:2], {"text": "a", "label": "new"}])


def test_an_unused_column_may_hold_anything(pretrained: Path, tmp_path: Path) -> None:
    """What text can express is kept; requested values that cannot be kept are named."""
    pd = pytest.importorskip("pandas")
    day, name = datetime.date(2024, 1, 2), uuid.UUID(int=7)
    frame = pd.DataFrame(ROWS).assign(day=pd.Timestamp(day), id=name, image=b"\x00", seen=[{1}] * len(ROWS))
    run = tuned(pretrained, tmp_path, frame, dev=frame)
    predictions = (run.folder / "predictions-dev.jsonl").read_text(encoding="utf-8")
    assert predictions.count(str(name)) == len(ROWS)
    (file,) = (run.folder / "data").glob("train-*")
    assert '"day": "2024-01-02T00:00:00"' in file.read_text(encoding="utf-8")
    scores = albertine.evaluate(run.folder, file=frame.assign(id=[object()] * len(ROWS)))
    assert scores["test"]["accuracy"] == run.scores["accuracy"]
    rows = [*ROWS, {"text": "a", "label": b"x"}]
    with pytest.raises(DataError, match=r"^train\[8\]: `label` is a bytes, not the name of a class"):
        tuned(pretrained, tmp_path / "other", rows)
    with pytest.raises(DataError, match=r"^test\[8\]: `text` is a set, not text"):
        albertine.evaluate(run.folder, file=[*ROWS, {"text": {1}, "label": "x"}])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_the_program_s_when_the_run_is_saved(
    number: signal.Signals, pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As everywhere in Python: a script would continue with a model that is not there."""
    step, heard = loop.train_step, list[bool]()
    saved = tmp_path / "finetune" / "checkpoints" / "latest"

    def stopped(*args: Any, **options: Any) -> Any:
        signal.raise_signal(number)
        return step(*args, **options)

    whole = tuned(pretrained, tmp_path, name="whole")
    monkeypatch.setattr(loop, "train_step", stopped)
    if number == signal.SIGINT:
        with pytest.raises(KeyboardInterrupt, match="saved"):
            tuned(pretrained, tmp_path)
    else:
        with pytest.raises(SystemExit, match="143"):
            tuned(pretrained, tmp_path)
        before = signal.signal(number, lambda *_: heard.append(saved.is_file()))
        try:
            assert not tuned(pretrained, tmp_path).outcome.done
        finally:
            signal.signal(number, before)
        assert heard == [True]
    monkeypatch.undo()
    again = tuned(pretrained, tmp_path)
    weights = [run.model.joinpath("model.safetensors").read_bytes() for run in (again, whole)]
    assert again.outcome.done and weights[0] == weights[1]


def test_all_names_are_listed() -> None:
    assert {*albertine.__all__, "TextClassifier"} <= {*dir(albertine)}
