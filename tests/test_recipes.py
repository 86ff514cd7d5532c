"""Every recipe runs, two steps at toy size, to a model folder that loads; its header states the expected
results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import XLNetLMHeadModel

import albertine
from albertine.cli.app import run
from albertine.core.batch import pack
from albertine.core.settings import load
from albertine.corpus.prepare import write_corpus
from albertine.corpus.source import Source
from albertine.corpus.vocabulary import VocabularyKind, train_vocabulary
from albertine.model.sharing import SharingPlan
from albertine.pretraining.model_costs import look_up_model
from albertine.pretraining.run import PretrainResult, _plateau_advice, _slow_start_advice, pretrain
from albertine.pretraining.settings import PretrainingSettings
from albertine.pretraining.stages import resolved_stages, untrained
from albertine.tasks.dataset_registry import known
from albertine.tasks.settings import FinetuneSettings
from albertine.training.metrics import curve
from tests.toy import MODEL, RUN, demo_text

RECIPES = sorted((Path(__file__).resolve().parents[1] / "recipes").glob("*.yaml"))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small corpus for each language, one with the vocabulary of an XLNet, and for each language one with
    that of the released model, whose students learn on it."""
    folder = tmp_path_factory.mktemp("recipes")
    found = {}
    kinds: dict[str, VocabularyKind | None] = {"en": None, "zh": None, "en-xlnet": "xlnet"}
    for name, kind in kinds.items():
        language = name[:2]
        source = Source([demo_text(language, folder / f"text-{language}", 200_000)])
        code, vocabulary = source.resolve_language(language), folder / f"vocabulary-{name}"
        tokenizer = train_vocabulary(source, vocabulary, code, kind=kind, vocab_size=3000, shrink=True)
        write_corpus(source.paths, folder / name, tokenizer, code, held_out=0.3, workers=1)
        found[name] = folder / name
        if kind is None:
            mini, taught = albertine.load_tokenizer(f"albertine-mini-{name}"), folder / f"{name}-taught"
            write_corpus(source.paths, taught, mini, code, held_out=0.3, workers=1)
            found[f"{name}-taught"] = taught
    return found


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_header_that_names_sharing_matches_its_recipe(recipe: Path) -> None:
    text = recipe.read_text(encoding="utf-8")
    head = " ".join(line.removeprefix("# ") for line in text.split("\n\n", 1)[0].splitlines())
    own, one = "own block" in head or "nothing shared" in head, "one block" in head
    assert own or one or "sharing" not in head
    if own or one:
        plan = look_up_model(str(recipe)).plan
        assert plan == (SharingPlan.unshared if own else SharingPlan.shared)(plan.depth)


def test_there_are_the_recipes_that_the_readme_names() -> None:
    names = {path.stem for path in RECIPES}
    assert {
        "albert-tiny-en",
        "albert-tiny-zh",
        "albert-small-en",
        "albert-base-en",
        "bert-base-en",
        "roberta-base-en",
        "albertine-mini-en",
        "albertine-mini-zh",
        "albertine-small-en",
        "albertine-small-zh",
        "albertine-tiny-en",
        "albertine-tiny-zh",
        "transformer-xl-tiny-en",
        "xlnet-tiny-en",
        "universal-tiny-en",
        "adapted-mini-en",
        "adapted-mini-zh",
        "distilled-mini-en",
        "distilled-mini-zh",
    } <= names


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_header(recipe: Path) -> None:
    header = [line[1:].strip() for line in recipe.read_text(encoding="utf-8").splitlines() if line[:1] == "#"]
    comments = {
        m[1]: m[2] for line in header if (m := re.match(r"(command|hardware|time|expected): +(\S.*)", line))
    }
    assert set(comments) == {"command", "hardware", "time", "expected"}
    assert any(f"pretrain --config recipes/{recipe.name}" in line for line in header)
    assert load(PretrainingSettings, recipe).name == recipe.stem


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_that_is_no_papers_own_has_all_that_the_alarm_would_advise(recipe: Path) -> None:
    settings = load(PretrainingSettings, recipe)
    advice = [
        *_plateau_advice(settings, look_up_model(str(recipe)).positions),
        *_slow_start_advice(settings.model),
    ]
    if settings.model.preset is not None:
        assert untrained(settings, look_up_model(str(recipe))) == []
    assert bool(advice) == (recipe.stem in {"albert-base-en", "bert-base-en", "roberta-base-en"}), advice


def two_steps(recipe: Path, corpora: dict[str, Path], folder: Path) -> tuple[Path, PretrainResult]:
    """The corpus of a recipe, and two steps of it at toy size, behind two of the recipe it begins with."""
    xlnet = "--kind xlnet" in recipe.read_text(encoding="utf-8")  # of `write_corpus`, in its header
    full = load(PretrainingSettings, recipe)
    # A released model that teaches, or that goes on, has the vocabulary of the corpus.
    start = full.model.start_from
    taught = start is not None and start.parts[0] != "runs"
    language = "zh" if recipe.stem.endswith("-zh") else "en"
    corpus = corpora[f"{language}-xlnet" if xlnet else f"{language}-taught" if taught else language]
    # What begins with weights has the size that they give it.
    begun = full.model.start_from is not None
    toy = [word for word in RUN if not (begun and word.startswith("model.change."))]
    toy += [f"corpus={json.dumps(str(corpus))}", f"output={json.dumps(str(folder))}"]
    if full.model.start_from is not None and full.model.start_from.parts[0] == "runs":
        _, first = two_steps(recipe.with_stem(full.model.start_from.parts[1]), corpora, folder)
        toy.append(f"model.start_from={json.dumps(str(first.folder / 'final'))}")
    if full.stages:  # two of them, at toy size
        toy.append(f"stages={json.dumps([{'begin': 0, 'max_length': 8}, {'begin': 0.5}])}")
    if full.objective.permutation.reuse:
        toy += ["objective.permutation.reuse=16", "objective.permutation.predictions=5"]
    return corpus, pretrain(load(PretrainingSettings, recipe, toy))


@pytest.mark.sample(6)
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_two_steps(recipe: Path, corpora: dict[str, Path], tmp_path: Path) -> None:
    full = load(PretrainingSettings, recipe)
    corpus, result = two_steps(recipe, corpora, tmp_path)
    assert result.outcome.done and result.outcome.step == 2
    model = albertine.load(result.folder / "final")
    expected = {"mlm" if full.objective.kind == "masked" else "lm", full.objective.pairs} - {"none"}
    assert expected <= model.heads
    assert ("sentence_accuracy" in result.outcome.scores) == (full.objective.pairs != "none")
    assert albertine.load_tokenizer(result.folder / "final").fingerprint == (
        albertine.load_tokenizer(corpus / "tokenizer").fingerprint
    )


def test_the_xlnet_of_its_recipe_loads_in_transformers(
    corpora: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is written for XLNet's own code; its loss is that of permutation language modelling."""
    recipe = next(path for path in RECIPES if path.stem == "xlnet-tiny-en")
    config = look_up_model(str(recipe))
    assert config.architecture == "xlnet" and not config.has_mapping
    wide = f"model.change.embedding_size={MODEL['hidden_size']}"  # at toy size too
    monkeypatch.setattr("tests.test_recipes.RUN", [*RUN, wide])
    _, result = two_steps(recipe, corpora, tmp_path)
    final = result.folder / "final"
    rows = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    assert rows and all("plm_loss" in (row.get("evaluation") or row) for row in rows)
    assert curve(result.folder / "metrics.jsonl", "mlm_loss") == curve(
        result.folder / "metrics.jsonl", "plm_loss"
    )
    for to in ("xlnet", "xlnet-tf"):
        assert run(["convert", str(final), str(tmp_path / to), "--to", to]) == 0
    model = XLNetLMHeadModel.from_pretrained(tmp_path / "xlnet").eval()
    ids = torch.tensor([[5, 9, 7, 30, 8]])
    with torch.no_grad():
        states = model.transformer(ids, token_type_ids=torch.zeros_like(ids)).last_hidden_state[0]
        ours = albertine.load(final).eval().encoder(pack([ids[0].tolist()])).last_hidden
    torch.testing.assert_close(ours, states, atol=1e-4, rtol=1e-4)


BEGUN = re.compile(r"(?:folder=|folder: |start_from: |teacher: )(albertine-[\w-]+)")
"""How a recipe names the released model that it begins with or learns from."""
FROM_RELEASED = [
    path
    for path in sorted(RECIPES[0].parent.rglob("*.yaml"))
    if BEGUN.search(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("recipe", FROM_RELEASED, ids=lambda path: path.stem)
def test_figures_name_their_release(recipe: Path) -> None:
    """Catches: measurements of a model that another of its name has replaced, reported as of the new one."""
    text = recipe.read_text(encoding="utf-8")
    expected = text.partition("# expected:")[2].partition("\n\n")[0].replace("\n#", " ")
    expected = " ".join(expected.split())
    for name in set(BEGUN.findall(text)):
        card = Path(albertine.__file__).parent / "released" / name / "README.md"
        now = re.search(r"has read (\d+) million tokens", card.read_text(encoding="utf-8"))
        of = re.findall(rf"{name} of (\d+) million tokens", expected)
        assert now and of and (now[1] in of or "present one" in expected), expected


TUNING = sorted((Path(__file__).resolve().parents[1] / "recipes" / "finetune").glob("*.yaml"))
TABLE_14 = {  # learning rate, batch, dropout, steps, warm-up: Lan et al. 2019, table 14
    "cola": (1e-5, 16, 0, 5336, 320),
    "sts-b": (2e-5, 16, 0, 3598, 214),
    "sst-2": (1e-5, 32, 0, 20935, 1256),
    "mnli": (3e-5, 128, 0, 10000, 1000),
    "qnli": (1e-5, 32, 0, 33112, 1986),
    "qqp": (5e-5, 128, 0.1, 14000, 1000),
    "rte": (3e-5, 32, 0.1, 800, 200),
    "mrpc": (2e-5, 32, 0, 800, 200),
    "wnli": (2e-5, 16, 0.1, 2000, 250),
    "squad": (5e-5, 48, 0, 3649, 365),
    "squad2": (3e-5, 48, 0, 8144, 814),
}
LENGTHS = {"squad": 384}  # 512 elsewhere
OTHERS = {"cmrc2018"}  # with settings of other authors


def test_every_row_of_table_14_is_a_recipe() -> None:
    assert set(TABLE_14) <= {path.stem for path in TUNING}
    for path in (path for path in TUNING if path.stem in TABLE_14):
        settings = load(FinetuneSettings, path)
        training, encoder = settings.training, settings.encoder
        found = (training.learning_rate, training.batch_size, encoder.dropout, training.steps)
        assert found == TABLE_14[path.stem][:4]
        assert training.steps is not None
        assert round(training.warmup * training.steps) == TABLE_14[path.stem][4]
        length = LENGTHS.get(path.stem, 512)
        assert (settings.task.max_length, encoder.classifier_dropout) == (length, 0.1)


@pytest.mark.parametrize("path", TUNING, ids=lambda path: path.stem)
def test_a_tuning_recipe_names_its_data_set_and_command(path: Path) -> None:
    settings, text = load(FinetuneSettings, path), path.read_text(encoding="utf-8")
    names = {None, *known()}
    assert settings.name == path.stem and settings.task.dataset in names
    for word in ("command", "hardware", "expected"):
        assert re.search(rf"^# {word}: +\S", text, re.MULTILINE), word
    assert f"finetune --config recipes/finetune/{path.name}" in text


def test_a_recipe_without_a_published_dropout_keeps_that_of_the_checkpoint() -> None:
    set_by_the_paper = {*TABLE_14, "race"}
    others = [path for path in TUNING if path.stem not in set_by_the_paper]
    assert others and all(load(FinetuneSettings, path).encoder.dropout is None for path in others)


def test_race_is_corrected_for_v2() -> None:
    race = load(FinetuneSettings, TUNING[0].with_name("race.yaml"))
    assert (race.training.learning_rate, race.encoder.dropout, race.training.steps) == (1e-5, 0, 12000)
    assert round(race.training.warmup * 12000) == 1000


WRITING = {  # most tokens, of these the target, batch, learning rate: bert4keras' examples
    "webqa": (352, 32, 32, 1e-5),
    "titles": (256, 32, 16, 1e-5),
}


@pytest.mark.parametrize("name", WRITING)
def test_recipes_of_generation_have_the_settings_of_bert4keras(name: str) -> None:
    settings = load(FinetuneSettings, next(path for path in TUNING if path.stem == name))
    task, training = settings.task, settings.training
    found = (task.max_length, task.target_length, training.batch_size, training.learning_rate)
    assert found == WRITING[name] and settings.name == name
    assert (training.schedule, training.warmup, training.weight_decay) == ("constant", 0, 0)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_stage_masks_words_of_several_tokens(recipe: Path) -> None:
    """With whole-word masking, a sample has room for a word of four tokens."""
    for stage in resolved_stages(load(PretrainingSettings, recipe)):
        masks, length = stage.objective.masks, stage.objective.max_length
        causal = stage.objective.causal_share == 1
        assert causal or not masks.whole_word or masks.budget(np.array([length]))[0] >= 4
