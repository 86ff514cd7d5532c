"""Cards are written from the files of runs; facts that are not recorded are stated as unknown."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from packaging.version import Version

import albertine
from albertine.cli.app import run as command
from albertine.core.quantiles import Z
from albertine.errors import RunError, SettingsError
from albertine.evaluation import card_sections, intervals
from albertine.evaluation.card_metadata import CardMetadata, carbon, emissions
from albertine.evaluation.hub_results import HUB, model_index, result_files
from albertine.evaluation.run_facts import Facts, Score, read_facts
from albertine.evaluation.runs import RECORD, Spread
from albertine.interop.hub.card import Card, describe_shape, head_of, stored_metadata
from albertine.interop.hub.card import render_card as card_text
from albertine.interop.huggingface.config import config_json
from albertine.interop.huggingface.folders import save_model
from albertine.interop.model_folder import ModelFolder
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tasks.datasets.classes import usage_call
from albertine.tasks.model_card import facts_of_kind, write_card
from tests import stand_in
from tests.model import builders

hub = pytest.importorskip("huggingface_hub")
STOP = {"training": {"steps": 2}, "watching": {"report": False, "tensorboard": False}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a run on a data set of the Hub, and a pretraining run, as files alone."""
    place = tmp_path_factory.mktemp("card")
    model, data = stand_in.put(place, "en"), place / "SST-2"
    data.mkdir()
    rows = [
        "sentence\tlabel",
        *(f"the {w} cat sat\t{i}" for w in ("old", "good") for i in (0, 1)),
        "mat .\t1",
    ]
    for file in ("train", "dev"):
        (data / f"{file}.tsv").write_text("\n".join(rows) + "\n")
    for seed in (1, 2):
        task = {"dataset": "sst-2", "folder": data, "max_length": 16}
        name = f"films-seed-{seed}"
        settings: dict[str, Any] = {
            "training": {**STOP["training"], "batch_size": 4},
            "watching": STOP["watching"],
        }
        albertine.finetune(model, name=name, output=place / "runs", task=task, seed=seed, **settings)
    text = place / "some text"
    text.mkdir()
    for number in range(20):
        (text / f"{number}.txt").write_text(f"the old man said he was a good cat {number}.\n" * 20)
    albertine.prepare(text, place / "corpus", tokenizer=model, held_out=0.3)
    albertine.pretrain(
        name="more",
        corpus=place / "corpus",
        output=place / "runs",
        model={"start_from": model},
        objective={"max_length": 32},
        training={"steps": 2, "batch_size": 4, "workers": 0},
        watching={"evaluate_sequences": 8, "tensorboard": False},
    )
    return place / "runs"


@pytest.fixture
def tuned(runs: Path, tmp_path: Path) -> Path:
    """A copy of the runs, whose first model is meant."""
    shutil.copytree(runs, tmp_path / "runs")
    other = tmp_path / "runs" / "films-seed-2" / "result.json"
    record = json.loads(other.read_text())
    record["scores"]["accuracy"] += 0.2  # so that there is a range
    other.write_text(json.dumps(record))
    return tmp_path / "runs" / "films-seed-1"


def sections(page: str) -> dict[str, str]:
    found = page.split("<!-- albertine:")[1:]
    return {part.partition(" ")[0]: part.partition("-->")[2].partition("<!--")[0] for part in found}


def test_a_tuned_model_and_its_seeds(tuned: Path, capsys: Any) -> None:
    options = ["--licence", "apache-2.0", "--watts", "65", "--grid", "380", "--language", "en"]
    assert command(["card", str(tuned), *options]) == 0, capsys.readouterr().err
    page = (tuned / "best" / "README.md").read_text()
    record = json.loads((tuned / "result.json").read_text())
    values = [json.loads((tuned.parent / f"films-seed-{i}" / "result.json").read_text())["scores"]["accuracy"]
              for i in (1, 2)]  # fmt: skip
    text = sections(page)
    assert list(text) == ["model", "data", "training", "scores", "limits", "licence", "carbon", "use", "cite"]
    assert (
        f"| accuracy, dev | {np.median(values):.4f} | seeds {min(values):.4f} to {max(values):.4f} |" in page
    )
    assert "batch_size 4, steps 2, precision" in text["training"] and "epochs" not in text["training"]
    assert "Tuned on sst-2, from albertine-mini-en." in text["model"] and "train: 5 examples" in text["data"]
    hours = record["seconds"] / 3600
    assert (
        f"= {hours * 65 / 1000:.3g} kWh; x 380 g CO2e/kWh (stated) = {hours * 65 * 380 / 1e6:.3g} kg"
        in text["carbon"]
    )
    assert "transformers has no name" in text["use"] and ".classify(" in text["use"]
    assert values[0] < values[1] and f"median of 2 seeds ({values[0]:.4f} to {values[1]:.4f})" in page
    assert str(tuned.parents[1]) not in page, "no path of this machine"

    head = hub.ModelCard(page).data  # which reads it as the Hub does
    assert (head.license, head.language, head.pipeline_tag) == ("apache-2.0", ["en"], "text-classification")
    assert (head.library_name, head.datasets) == ("albertine", ["nyu-mll/glue"])
    assert head.to_dict()["co2_eq_emissions"]["emissions"] == round(hours * 65 / 1000 * 380, 3)
    (result,) = head.eval_results
    assert (result.dataset_type, result.dataset_config, result.metric_type) == (
        "nyu-mll/glue",
        "sst2",
        "accuracy",
    )
    assert result.metric_value == round(float(np.median(values)), 6)
    file = tuned / "best" / ".eval_results" / "sst-2.yaml"
    (entry,) = hub.parse_eval_result_entries(yaml.safe_load(file.read_text()))
    assert (entry.dataset_id, entry.task_id, entry.value) == ("nyu-mll/glue", "sst2", result.metric_value)
    assert hub.eval_result_entries_to_yaml([entry]) == yaml.safe_load(file.read_text())


def test_scores_are_published_of_the_data_that_was_scored() -> None:
    """ChID here is FewCLUE's, and CMRC's second file its trial set."""
    both = (Score("cmrc_f1", 0.5, "dev"), Score("cmrc_f1", 0.6, "test"))
    assert result_files(Facts(data="chid", scores=both)) == {}
    (file,) = result_files(Facts(data="cmrc2018", scores=both)).values()
    (row,) = yaml.safe_load(file)
    assert row["value"] == 0.5 and "on dev" in row["notes"]


def test_text_by_hand_stays_and_metadata_is_kept(tuned: Path) -> None:
    folder = tuned / "best"
    write_card(folder, CardMetadata(licence="mit", watts=10.0))
    page = (folder / "README.md").read_text()
    mine = page.replace("license: mit", "license: mit\nthumbnail: cat.png").replace(
        "<!-- albertine:data -->", "## My own words\n\nAsk me about *cats*.\n\n<!-- albertine:data -->"
    )
    (folder / "README.md").write_text(mine.replace("train: 5 examples", "what I made of it"))
    write_card(folder, CardMetadata(grid=100.0))
    again = (folder / "README.md").read_text()
    assert "## My own words\n\nAsk me about *cats*." in again and "what I made of it" not in again
    assert head_of(again)["thumbnail"] == "cat.png" and head_of(again)["license"] == "mit"
    assert stored_metadata(again) == {"licence": "mit", "watts": 10.0, "grid": 100.0} and "kg CO2e" in again
    write_card(folder, CardMetadata())
    assert (folder / "README.md").read_text() == again
    # Another model in its place: the words stay, the scores of the first do not.
    albertine.save(albertine.load(folder), albertine.load_tokenizer(folder), folder)
    other = (folder / "README.md").read_text()
    assert (
        "Ask me about *cats*." in other and "## Scores" not in other and "model-index" not in head_of(other)
    )
    assert not (folder / ".eval_results").exists() and head_of(other)["license"] == "mit"


@pytest.mark.parametrize("pairs", [False, True, None])
def test_the_example_of_a_card_uses_the_settings_of_the_model(tuned: Path, pairs: bool | None) -> None:
    """A classifier of pairs refuses a single text, and the other way round."""
    folder = tuned / "best"
    config = json.loads((folder / "config.json").read_text())
    config["albertine"]["pairs"] = pairs
    (folder / "config.json").write_text(json.dumps(config))
    write_card(folder, CardMetadata())
    (calls,) = [
        line
        for line in (folder / "README.md").read_text().splitlines()
        if line.startswith("albertine.Predictor(")
    ]
    assert ('("a text", "another")' in calls) == (pairs is True)
    (found,) = eval(calls.replace("path/to/this/folder", str(folder)), {"albertine": albertine})
    assert found.keys() == {"0", "1"}
    compared = {"albertine": {"task": "classify", "pooling": "compared", "pairs": pairs}}
    assert usage_call(compared) == 'classify([("a text", "another")])'


def test_what_a_person_edits_in_the_head_counts(tuned: Path) -> None:
    card = tuned / "best" / "README.md"

    def edited(before: str, after: str) -> dict[str, Any]:
        page = card.read_text()
        assert before in page
        card.write_text(page.replace(before, after, 1))
        write_card(card.parent, CardMetadata())
        return head_of(card.read_text())

    write_card(card.parent, CardMetadata(licence="mit", watts=10.0))
    head = edited("license: mit", "license: apache-2.0\nlanguage: fr")
    assert (head["license"], head["language"]) == ("apache-2.0", ["fr"])
    assert "## Licence\n\napache-2.0" in card.read_text()
    assert edited("language:\n- fr", "language: de")["language"] == ["de"]
    assert stored_metadata(card.read_text()) == {"licence": "apache-2.0", "languages": ["de"], "watts": 10.0}
    assert edited("license: apache-2.0", "license: unknown")["license"] == "unknown"
    write_card(card.parent, CardMetadata(licence="mit"))
    assert head_of(card.read_text())["license"] == "mit", "what is said now is above all"


def test_a_base_model_that_is_edited_to_a_list_counts(tuned: Path) -> None:
    begun_with(tuned, "someone/a-model", "someone/a-model")
    card, line = tuned / "best" / "README.md", "base_model: someone/a-model"
    write_card(card.parent, CardMetadata())
    page = card.read_text()
    assert line in page
    card.write_text(page.replace(line, "base_model:\n- me/other\n- me/third", 1))
    for _ in range(2):
        write_card(card.parent, CardMetadata())
        assert head_of(card.read_text())["base_model"] == ["me/other", "me/third"]


def begun_with(run: Path, typed: str, meant: str) -> None:
    """A run with its start model as typed, which its settings hold as resolved."""
    record = json.loads((run / "result.json").read_text()) | {"encoder": typed}
    (run / "result.json").write_text(json.dumps(record))
    settings = yaml.safe_load((run / "settings.yaml").read_text())
    settings["encoder"]["folder"] = meant
    (run / "settings.yaml").write_text(yaml.safe_dump(settings))


def test_facts_of_the_run_are_not_kept_as_metadata(tuned: Path) -> None:
    begun_with(tuned, "someone/a-model", "someone/a-model")
    card = tuned / "best" / "README.md"
    for base, kept in ((None, {}), (None, {}), ("me/other", {"base": "me/other"})):
        write_card(card.parent, CardMetadata(base=base))
        assert stored_metadata(card.read_text()) == kept
    assert head_of(card.read_text())["base_model"] == "me/other"


def rescored(run: Path, picks: str, found: Sequence[float | None]) -> None:
    """A metrics file of a run whose evaluations every ten steps found these values."""
    rows: list[dict[str, Any]] = [
        {"step": step, "tokens": 100 * step, "elapsed": 60.0 * step}
        for step in range(5, 10 * len(found) + 1, 5)
    ]
    rows += [{"step": 10 * i, "evaluation": {picks: x}, "elapsed": 600.0 * i} for i, x in enumerate(found, 1)]
    lines = [json.dumps(row) + "\n" for row in sorted(rows, key=lambda row: row["step"])]
    (run / "metrics.jsonl").write_text("".join(lines))


def test_the_card_of_the_last_model_lacks_the_scores_of_the_best(tuned: Path) -> None:
    rescored(tuned, "accuracy", [0.6, 0.9, 0.7])
    record = json.loads((tuned / RECORD).read_text()) | {"step": 30, "test": {"accuracy": 0.95}}
    (tuned / RECORD).write_text(json.dumps(record | {"scores": {"step": 20.0, "accuracy": 0.9}}))
    final, best = read_facts(tuned / "final"), read_facts(tuned / "best")
    assert final.scores == (Score("accuracy", 0.7, "dev", "last step", count=5),) and final.seeds == 1
    assert [(s.value, s.split) for s in best.scores] == [(0.9, "dev"), (0.95, "test")] and best.seeds == 2
    assert (best.steps, best.picked, final.steps, final.picked) == (30, 20, 30, None)
    pages = {}
    for model in ("best", "final"):
        write_card(tuned / model, CardMetadata())
        pages[model] = sections((tuned / model / "README.md").read_text())
    assert (
        "- 30 updates" in pages["best"]["training"] and "those after update 20." in pages["best"]["training"]
    )
    assert "chosen on the dev set" in pages["best"]["scores"]
    assert "these weights" not in pages["final"]["training"]
    assert "| last step: accuracy, dev | 0.7000 |" in pages["final"]["scores"]
    assert "picked by" not in pages["final"]["scores"]
    # Where the last step was the best, or dev is another one now, by which the best alone was scored again:
    (tuned / RECORD).write_text(json.dumps(record | {"scores": {"step": 30.0, "accuracy": 0.7}}))
    assert read_facts(tuned / "final").scores == read_facts(tuned / "best").scores
    (tuned / RECORD).write_text(json.dumps(record | {"scores": {"step": 20.0, "accuracy": 0.8}}))
    assert read_facts(tuned / "final").scores == ()


def test_a_tuned_run_that_is_not_done_has_no_card(tuned: Path) -> None:
    (tuned / RECORD).unlink()
    with pytest.raises(RunError, match=r"no finished run of a task.*same command finishes it"):
        write_card(tuned / "best", CardMetadata())
    assert "Tuned" not in (tuned / "best" / "README.md").read_text()


def test_a_name_with_the_signs_of_a_pattern(tuned: Path) -> None:
    for seed in (1, 2):
        (tuned.parent / f"films-seed-{seed}").rename(tuned.parent / f"a[1]-seed-{seed}")
    assert read_facts(tuned.parent / "a[1]-seed-1").seeds == 2


def test_runs_of_other_settings_are_no_seeds(tuned: Path) -> None:
    """Catches: a median over runs at two learning rates."""
    other = tuned.parent / "films-seed-2" / "settings.yaml"
    settings = yaml.safe_load(other.read_text())
    settings["watching"]["report"] = not settings["watching"].get("report")
    other.write_text(yaml.safe_dump(settings))
    assert read_facts(tuned).seeds == 2
    settings["training"]["learning_rate"] = 0.25
    other.write_text(yaml.safe_dump(settings))
    assert read_facts(tuned).seeds == 1


@pytest.mark.parametrize("beside", [True, False])
def test_only_a_name_of_the_hub_is_a_base_model(
    beside: bool, tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(
        tuned.parents[1] if beside else tmp_path / "elsewhere"
    )  # whether runs/ is a folder here
    for typed, meant, base, recorded in (
        ("someone/a-model", "someone/a-model", "someone/a-model", "someone/a-model"),
        ("runs/before", str(tuned.parent / "before"), None, "before"),
        ("runs/before/best", str(tuned.parent / "before" / "best"), None, "before"),
    ):
        begun_with(tuned, typed, meant)
        (tuned / "best" / "README.md").unlink()
        write_card(tuned / "best", CardMetadata())
        page = (tuned / "best" / "README.md").read_text()
        assert head_of(page).get("base_model") == base and f"from {recorded}." in page


def test_no_path_of_the_machine_is_in_a_card(tuned: Path) -> None:
    record = json.loads((tuned / "result.json").read_text())
    record |= {"data": "/srv/ann/a.csv, data/b.csv, /srv/ann/c.csv"}
    record |= {"pretraining": "corpus /srv/ann/corpora/en, objective sop, 150.0 minutes"}
    (tuned / "result.json").write_text(json.dumps(record))
    write_card(tuned / "best", CardMetadata())
    page = (tuned / "best" / "README.md").read_text()
    assert "Tuned on a.csv, data/b.csv, c.csv, from" in page and "/srv" not in page
    assert "- The encoder before it: corpus en, objective sop, 150.0 minutes." in page


def test_a_card_that_a_person_wrote_alone_is_kept_whole(tuned: Path) -> None:
    own = "---\nlicense: cc-by-4.0\nlanguage: zh\n---\n\n# 我的模型\n\nSomething.\n"
    (tuned / "best" / "README.md").write_text(own)
    write_card(tuned / "best", CardMetadata())
    page = (tuned / "best" / "README.md").read_text()
    assert "# 我的模型\n\nSomething." in page and "## Licence\n\ncc-by-4.0" in page
    assert head_of(page)["language"] == ["zh"]


def test_a_model_without_a_type(tmp_path: Path) -> None:
    """The folders of BERT of 2018 have none."""
    save_model(builders.model(SharingPlan.unshared(2), embedding_size=24), None, tmp_path / "bert")
    file = tmp_path / "bert" / "config.json"
    config = json.loads(file.read_text())
    assert config.pop("model_type") == "bert"
    file.write_text(json.dumps(config))
    write_card(tmp_path / "bert", CardMetadata())
    page = (tmp_path / "bert" / "README.md").read_text()
    assert "- bert\n" in page and "AutoModelForPreTraining.from_pretrained" in page


def test_a_pretrained_model(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs.parent, tmp_path / "all")
    run = tmp_path / "all" / "runs" / "more"
    model = run / "best" if (run / "best").is_dir() else run / "final"
    write_card(model, CardMetadata())
    page = (model / "README.md").read_text()
    text = sections(page)
    manifest = read_facts(model).corpus
    assert (
        manifest is not None and f"train: {manifest.count('documents', 'train'):,} documents" in text["data"]
    )
    assert "Text: some text; language en." in text["data"] and "heldout" in text["data"]
    assert "Pretrained from albertine-mini-en." in text["model"] and "2 updates" in text["training"]
    assert (
        "power of its machine is not stated" in text["carbon"]
        and "Unknown: no licence is stated" in text["licence"]
    )
    assert head_of(page)["license"] == "unknown" and head_of(page)["language"] == ["en"]
    assert "held out" in text["scores"] and "For scores without an interval" in text["scores"]
    assert str(runs.parent) not in page and not (model / ".eval_results").exists()
    rows = [{"task": "mlm", "accuracy": 0.5, "count": 100, "baseline": 0.25, "loss": 3.0}]
    for floor, chance in (({}, "0.2500"), ({"floor": 0.375}, "0.3750")):  # of which some are shown
        (model / "scores.json").write_text(json.dumps([rows[0] | floor]))
        write_card(model, CardMetadata())
        assert (
            f"| mlm: accuracy, held out | 0.5000 | 0.4038 to 0.5962 | {chance} | 100 |"
            in (model / "README.md").read_text()
        )


def test_a_suite_may_stand_alone(tmp_path: Path) -> None:
    """As `albertine suite --json` prints it."""
    suite = {"suite": "blimp", "right": 0.6, "pairs": 400, "standard_error": 0.02}
    for tree in (suite, [suite], {"grammar": suite}):
        (tmp_path / "scores.json").write_text(json.dumps(tree))
        (score,) = read_facts(tmp_path).scores
        assert (score.metric, score.value, score.what, score.count) == ("right", 0.6, "blimp", 400)


def test_scores_that_are_nested_without_end_are_none(tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text("[" * 100_000)
    assert read_facts(tmp_path).scores == ()


MERGES_ONCE = Version(yaml.__version__) >= Version("6.0.4")
BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 7)
)


@pytest.mark.parametrize(
    "head",
    [
        *("license: [mit", "license: 2026-11-31", "license: !!bool maybe"),
        pytest.param(BOMB, marks=pytest.mark.skipif(MERGES_ONCE, reason="PyYAML merges a key once")),
    ],
    ids=lambda text: text[:12],
)
def test_a_head_that_cannot_be_read_stays(head: str) -> None:
    """Catches: manual text lost for a bracket; a head that is merged for hours."""
    start, before = time.process_time(), f"---\n{head}\n---\n\nMine.\n"
    assert head_of(before) == {}
    page = card_text(Card({"license": "mit"}, {"model": "# A model"}), before)
    assert time.process_time() - start < 1
    assert head_of(page) == {"license": "mit"} and head in page and "Mine." in page
    assert page.count("---\n") == 4


@pytest.mark.parametrize(("by_length", "chance"), [(0.6, 0.6), (0.4, 0.52), (None, 0.52)])
def test_sentence_order_predicted_by_lengths_is_the_baseline(
    by_length: float | None, chance: float, tmp_path: Path
) -> None:
    row = {"task": "sop", "accuracy": 0.62, "count": 100, "baseline": 0.52, "by_length": by_length}
    (tmp_path / "scores.json").write_text(json.dumps([row]))
    (score,) = read_facts(tmp_path).scores
    assert score.chance == chance


def test_intervals_that_do_not_stand_in_the_table_are_not_explained() -> None:
    found = intervals.of_share(0.8, 100)
    score = Score("accuracy", 0.8, "dev", interval=found, spread=Spread((0.8, 0.9)))
    assert "Wilson" not in "".join(card_sections.scores(Facts(scores=(score,), seeds=2)))
    assert "Wilson" in "".join(card_sections.scores(Facts(scores=(replace(score, spread=None),))))


def test_what_gave_off_carbon() -> None:
    """A student of a pretrained model whose corpus is gone, on an unnamed machine."""
    facts = Facts(made="distilled", seconds=3600.0, settings={"objective": {}})
    text = emissions(facts, CardMetadata(watts=10.0, grid=100.0))
    assert text is not None and text["training_type"] == "pre-training" and "hardware_used" not in text
    tuned = replace(facts, settings={"task": {}}, environment={"device": "cpu", "cpu": "A processor"})
    text = emissions(tuned, CardMetadata(watts=10.0, grid=100.0))
    assert text is not None and text["training_type"] == "fine-tuning"
    assert text["hardware_used"] == "A processor"


@pytest.mark.parametrize(
    ("tokens", "seconds", "duration", "hours"),
    [
        (6_412, 9.7, "6,412 tokens, 0.0027 hours", "0.0027"),
        (1_250_000, 5400.0, "1.2 million tokens, 1.50 hours", "1.50"),
    ],
)
def test_the_time_of_a_run_of_seconds_is_not_rounded_to_zero(
    tokens: int, seconds: float, duration: str, hours: str
) -> None:
    facts = Facts(settings={"objective": {}}, steps=16, tokens=tokens, seconds=seconds)
    assert f"- 16 updates, {duration} by the clock." in card_sections.training(facts)
    assert carbon(facts, CardMetadata(watts=65.0)).startswith(f"{hours} hours (record of the run) x 65 W")
    assert f"the run took {hours} hours" in carbon(facts, CardMetadata())


@pytest.mark.parametrize(
    ("model", "found", "value", "picked"),
    [
        ("best", [0.04, 0.05, 0.05, 0.02], 0.05, 20),
        ("best", [None, 0.05, 0.06, None], 0.06, 30),
        ("final", [0.04, 0.05, 0.05, 0.02], 0.02, None),
        ("final", [0.04, 0.05, 0.05, None], None, None),
    ],
)
def test_the_scores_of_a_pretrained_model_are_of_its_weights(
    runs: Path, tmp_path: Path, model: str, found: list[float | None], value: float | None, picked: int | None
) -> None:
    run = shutil.copytree(runs / "more", tmp_path / "more")
    rescored(run, "mlm_accuracy", found)
    facts = read_facts(run / model)
    assert [(s.metric, s.value, s.split) for s in facts.scores] == [("mlm_accuracy", value, "held out")][
        : value is not None
    ]
    assert (facts.steps, facts.tokens, facts.picked) == (40, 4000, picked)
    write_card(run / model, CardMetadata())
    page = sections((run / model / "README.md").read_text())["training"]
    assert "- 40 updates" in page and ("those after update" in page) == (picked is not None)


def test_another_corpus_at_the_path_of_the_runs_is_not_described(runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "more", tmp_path / "more")
    settings = (run / "settings.yaml").read_text()
    assert str(runs.parent / "corpus") in settings
    corpus = shutil.copytree(runs.parent / "corpus", tmp_path / "corpus")
    (run / "settings.yaml").write_text(settings.replace(str(runs.parent / "corpus"), str(corpus)))
    assert read_facts(run / "best").corpus is not None
    manifest = corpus / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"language": "en"', '"language": "zh"'))
    write_card(run / "best", CardMetadata())
    page = (run / "best" / "README.md").read_text()
    assert "no longer in its place" in sections(page)["data"] and "language" not in head_of(page)
    shutil.rmtree(run / "checkpoints")  # then nothing records what the run has read
    assert read_facts(run / "best").corpus is not None


def test_the_card_of_a_model_without_a_run_states_what_is_unknown(tmp_path: Path) -> None:
    folder = stand_in.put(tmp_path, "zh")
    write_card(folder, CardMetadata())
    page = (folder / "README.md").read_text()
    text = sections(page)
    assert "there is no run beside it" in text["model"] and "Not known" in text["data"]
    assert "None was measured." in text["scores"] and "Its quality was not measured" in text["limits"]
    assert "no record of a run" in text["carbon"] and head_of(page)["pipeline_tag"] == "fill-mask"
    assert "converted" in head_of(page)["tags"] and "language" not in head_of(page)


@pytest.mark.parametrize(
    "metadata", [CardMetadata(licence="Apache 2.0!"), CardMetadata(watts=0.0), CardMetadata(grid=-1.0)]
)
def test_what_makes_no_sense_is_refused(metadata: CardMetadata, tmp_path: Path) -> None:
    folder = stand_in.put(tmp_path, "en")
    before = (folder / "README.md").read_text()
    with pytest.raises(SettingsError):
        write_card(folder, metadata)
    assert (folder / "README.md").read_text() == before


@pytest.mark.parametrize(
    ("kind", "words", "changes"),
    [
        ("albert", "one block used at every depth.", {}),
        ("albert", "2 blocks: 1 to 2 use number 0; 3 to 4 use number 1", {"plan": SharingPlan.grouped(4, 2)}),
        ("bert", "each with its own block", {"plan": SharingPlan.unshared(3)}),
        ("roformer", "each with its own block", {"plan": SharingPlan.unshared(3), "positions": "rotary"}),
        ("albertine", "one attention block used", {"plan": SharingPlan.attention_only(3)}),
    ],
)
def test_a_card_states_which_parameters_are_shared(kind: str, words: str, changes: dict[str, Any]) -> None:
    config = builders.config(**({"embedding_size": 24} | changes))
    description = f"({kind}): 7 parameters, hidden size 24, embedding size 24, vocabulary 53; "
    description += f"{config.plan.depth} depths, {words}"
    assert f"A text encoder {description}" in describe_shape(config_json(Model(config)), 7)


def test_intervals() -> None:
    half = intervals.of_share(0.5, 100)  # Wilson's of 50 of 100
    assert (round(half.low, 4), round(half.high, 4)) == (0.4038, 0.5962)
    assert intervals.of_share(1.0, 10).high == pytest.approx(1.0) and intervals.of_share(1.0, 10).low < 0.75
    rng = np.random.default_rng(0)
    gold = rng.normal(size=300)
    lines = [
        {"label": float(a), "prediction": float(a + b)}
        for a, b in zip(gold, rng.normal(size=300), strict=True)
    ]
    value = float(np.corrcoef(gold, [line["prediction"] for line in lines])[0, 1])
    found = intervals.of_predictions("pearson", value, lines)
    assert found is not None and found == intervals.of_predictions("pearson", value, lines)
    # Fisher's transformation gives the textbook's interval of a correlation
    low, high = (float(np.tanh(np.arctanh(value) + s * Z / np.sqrt(297))) for s in (-1, 1))
    assert found.low == pytest.approx(low, abs=0.02) and found.high == pytest.approx(high, abs=0.02)
    assert intervals.of_predictions("pearson", value + 0.01, lines) is None, "not the score of these lines"
    assert intervals.of_predictions("squad_f1", value, lines) is None
    wrong = [{"label": ["a"], "prediction": "b"}] * 81
    none = intervals.of_predictions("cmrc_exact", 0.0, wrong)
    assert none == intervals.of_share(0.0, 81) and round(none.high, 3) == 0.045
    triples = [{"label": [["a", "b", "c"]], "prediction": []}] * 100
    assert intervals.of_predictions("triple_f1", 0.0, triples) is None, "resamples of equal values"
    several = [{"label": ["a", "b"], "prediction": ["a"]}, {"label": ["b"], "prediction": ["b"]}] * 20
    micro = intervals.of_predictions("micro_f1", 0.8, several)
    assert micro is not None and micro.low < 0.8 < micro.high
    things = [{"label": [["per", 0, 2], ["loc", 4, 6]], "prediction": [["per", 0, 2]]}] * 10
    things += [{"label": [["per", 0, 2]], "prediction": [["per", 0, 2]]}] * 20
    entities = intervals.of_predictions("entity_f1", 60 / 70, things)
    assert entities is not None and entities.low < 60 / 70 < entities.high


@pytest.mark.parametrize(
    ("data", "kind", "metric"), [("squad", "reading", "text_f1"), ("mnli", "similarity", "spearman")]
)
def test_a_data_set_of_another_task_kind_is_no_benchmark(data: str, kind: str, metric: str) -> None:
    facts = Facts(data=data, settings={"task": {"kind": kind}}, scores=(Score(metric, 0.5, "dev"),))
    facts, benchmark = facts_of_kind(facts), facts
    assert result_files(facts) == {} and result_files(benchmark) != {}
    for one, kind in ((facts, data), (benchmark, HUB[data].dataset)):
        (index,) = model_index(one, "a", None) or ()
        dataset = index["results"][0]["dataset"]
        assert dataset["type"] == kind and ("config" in dataset) == (one is benchmark)


def test_scores_of_an_earlier_card_go_where_they_are_none_any_more(
    tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a file that is sent with the model long after the card has no such score."""
    place = tuned / "best" / ".eval_results"
    write_card(tuned / "best", CardMetadata())
    (place / "of somebody.yaml").write_text("[]")
    monkeypatch.setattr("albertine.tasks.model_card.result_files", lambda facts: {})
    write_card(tuned / "best", CardMetadata())
    assert [file.name for file in place.iterdir()] == ["of somebody.yaml"]


def test_scores_beside_a_card_that_is_not_ours_stay(tuned: Path) -> None:
    place = tuned / "best" / ".eval_results"
    place.mkdir()
    (place / "mrpc.yaml").write_text("[]")
    (tuned / "best" / "README.md").write_text("# A model of mine\n")
    write_card(tuned / "best", CardMetadata())
    assert {file.name for file in place.iterdir()} == {"mrpc.yaml", "sst-2.yaml"}


def test_questions_of_one_passage_are_not_independent() -> None:
    score = Score("squad_exact", 0.8, "dev", interval=intervals.of_share(0.8, 100))
    for kind, dependent in (("answers", True), ("single", False)):
        facts = facts_of_kind(Facts(scores=(score,), settings={"task": {"kind": kind}}))
        assert ("Questions of one passage" in "".join(card_sections.scores(facts))) == dependent


def test_the_card_of_a_branch_describes_the_run_before(runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "more", tmp_path / "more")
    differ = {"training.learning_rate": {"before": 0.1, "now": 0.2}}
    record = {"checkpoint": "/srv/a/checkpoints/step-1", "step": 1, "differences": differ}
    (run / "branch.json").write_text(json.dumps(record))
    write_card(run / "final", CardMetadata(watts=10.0, grid=100.0))
    page = (run / "final" / "README.md").read_text()
    text = sections(page)
    assert "up to update 1 it is another run" in text["model"] and "/srv" not in page
    assert "its other settings: training.learning_rate" in text["training"]
    assert "this run alone" not in text["carbon"]


def test_copies_are_described_as_the_shared_model(tmp_path: Path) -> None:
    save_model(builders.model(SharingPlan.shared(3)), None, tmp_path / "copies", layout="electra")
    write_card(tmp_path / "copies", CardMetadata())
    text = sections((tmp_path / "copies" / "README.md").read_text())["model"]
    assert "one block used at every depth" in text and "its own block" not in text


def test_a_causal_model_fills_no_masks(runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "more", tmp_path / "more")
    settings = yaml.safe_load((run / "settings.yaml").read_text())
    settings["objective"]["kind"] = "causal"
    (run / "settings.yaml").write_text(yaml.safe_dump(settings))
    rows = {"step": 2, "evaluation": {"mlm_accuracy": 0.2, "mask_accuracy": 0.2}, "elapsed": 1.0}
    (run / "metrics.jsonl").write_text(json.dumps(rows) + "\n")
    assert [score.metric for score in read_facts(run / "final").scores] == ["lm_accuracy"]
    found = ModelFolder(Model(builders.config(qk_norm=True), {"lm"}), {}, {})
    assert "masked tokens" not in "".join(card_sections.limits(found, Facts(), None))


def test_the_base_model_of_a_card_has_no_revision(tuned: Path) -> None:
    begun_with(tuned, "someone/a-model@abc", "someone/a-model@abc")
    write_card(tuned / "best", CardMetadata())
    page = (tuned / "best" / "README.md").read_text()
    assert head_of(page)["base_model"] == "someone/a-model" and "from someone/a-model@abc." in page
