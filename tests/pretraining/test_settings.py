"""Settings, and the errors where they do not fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from albertine.core.settings import apply_overrides, dump, resolve
from albertine.errors import SettingsError
from albertine.model.config import EncoderConfig
from albertine.model.sharing import SharingPlan
from albertine.pretraining.initial_model import encoder_config
from albertine.pretraining.settings import EncoderChanges, ModelChoice, PretrainingSettings

GOOD = {
    "name": "a",
    "corpus": "corpora/a",
    "model": {"preset": "albert-base-v2"},
    "training": {"steps": 10},
}


def test_settings_survive_being_written_down() -> None:
    settings = resolve(PretrainingSettings, GOOD)
    assert resolve(PretrainingSettings, yaml.safe_load(dump(settings))) == settings


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("training.batchsize=3", "did you mean `training.batch_size`"),
        ("objective.masking.n_gram=2", "did you mean `objective.masking.ngram`"),
        ("model.change.output=own", "did you mean `model.output`"),
        ("model.change.residual_factor=0.5", "did you mean `model.residuals`"),
        ("model.tie_word_embeddings=false", "did you mean `model.output`"),
        ("training.minutes=3", "not both; that of a recipe is removed by training.steps=null or"),
        ("training.steps=null", "steps or training.minutes"),
        ("model.start_from=folder", "model.preset or model.start_from, and not both"),
        ("objective.pairs=sopp", "objective.pairs"),
        ("training.learning_rate=-1", "training.learning_rate"),
        ("name=a/b", r"`name`: 'a/b' has '/' in it"),
        ("name=a\\b", r"`name`: 'a.*b' has"),
        ("name=..", "`name`: `..` is no name of a new folder"),
        ("name=.", "`name`: `.` is no name of a new folder"),
        ("name=''", "`name`: `` is no name"),
        ('name="a\\nb"', r"`name`: 'a.nb' has '.n' in it"),
        ('name="a\\rb"', r"`name`: 'a.rb' has '.r' in it"),
        ('name="a\\u2028b"', r"`name`: .* has '.u2028' in it"),
        ('name="a\\0b"', r"`name`: .* has '.x00' in it"),
        ("watching.keep=1", "watching.keep"),
        ("training.optimizer=muons", "training.optimizer"),
        ("training.adamw_rate=0.3", "training.adamw_rate belongs to training.optimizer=muon"),
        ("training.average=1", "training.average"),
        ("training.average=0", "training.average"),
    ],
)
def test_wrong_settings_are_named(assignment: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        resolve(PretrainingSettings, apply_overrides(GOOD, [assignment]))


@pytest.mark.parametrize("name", ["a b", "...", "..a", "北京", "ﬁ\u3000x", "a.b:c", "-x"])
def test_any_name_of_a_folder_is_a_name_of_a_run(name: str) -> None:
    assert resolve(PretrainingSettings, {**GOOD, "name": name}).folder.name == name


def test_the_published_rate_is_scaled_with_the_root_of_the_batch() -> None:
    def rate(**training: object) -> float:
        return resolve(PretrainingSettings, {**GOOD, "training": {"steps": 1, **training}}).training.rate

    assert rate(batch_size=4096) == pytest.approx(0.00176)
    assert rate(batch_size=256) == pytest.approx(0.00044)
    assert rate(batch_size=1024, optimizer="adamw") == pytest.approx(2e-4)
    assert rate(batch_size=1024, learning_rate=0.5) == 0.5
    assert rate(batch_size=16, optimizer="muon") == rate(batch_size=4096, optimizer="muon") == 0.02


def test_encoder_follows_preset_changes_and_vocabulary() -> None:
    config = encoder_config(
        ModelChoice(preset="albert-base-v2", sharing="attention", change={"num_hidden_layers": 3}), 777, 128
    )
    assert config.vocab_size == 777
    assert config.plan == SharingPlan.attention_only(3)
    bert = encoder_config(ModelChoice(preset="bert-base", change={"num_hidden_layers": 2}), 777, 128)
    assert bert.plan == SharingPlan.unshared(2)
    for two in (2, "2"):
        model = {"preset": "albert-base-v2", "sharing": two, "change": {"num_hidden_layers": 3}}
        groups = resolve(PretrainingSettings, {**GOOD, "model": model}).model
        assert encoder_config(groups, 777, 128).plan == SharingPlan((0, 0, 1), (0, 0, 1))


def test_a_repeated_core_is_given_in_parts_or_whole() -> None:
    parts = ["model.sharing.core=2", "model.sharing.loops=3", "model.sharing.coda=1"]
    whole = ["model.sharing={core: 2, loops: 3, coda: 1}"]
    found = [resolve(PretrainingSettings, apply_overrides(GOOD, given)) for given in (parts, whole)]
    assert found[0] == found[1] == resolve(PretrainingSettings, yaml.safe_load(dump(found[0])))
    assert encoder_config(found[0].model, 777, 128).plan == SharingPlan.looped(0, 2, 3, 1)
    as_many = apply_overrides(GOOD, [*parts, "model.change.num_hidden_layers=7"])
    config = encoder_config(resolve(PretrainingSettings, as_many).model, 777, 128)
    assert config.num_hidden_layers == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hiden_size": 3}, "did you mean `model.change.hidden_size`"),
        ({"hidden_size": 100}, "multiple of num_attention_heads"),
        ({"hidden_size": "wide"}, "`model.change.hidden_size`: input should be a valid integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": "six", "sharing": "all"}, "`model.change.num_hidden_layers`"),
        ({"num_hidden_layers": 2.5, "sharing": "all"}, "`model.change.num_hidden_layers`"),
        ({"num_hidden_layers": 10**12, "sharing": "all"}, "`model.change.num_hidden_layers`"),
        ({"num_hidden_layers": 3, "sharing": 4}, "model.sharing: 4 groups.*has 3. Set it to 3 at most"),
        ({"sharing": 0}, "`model.sharing`"),
        ({"sharing": "some"}, "`model.sharing`"),
        ({"sharing": {"core": 1}}, "`model.sharing`: `loops`: field required"),
        ({"sharing": {"core": 0, "loops": 2}}, "`model.sharing`: `core`"),
        ({"sharing": {"core": 1, "loops": 0}}, "`model.sharing`: `loops`"),
        ({"sharing": {"core": 1, "loop": 2}}, "unknown setting `loop`; did you mean `loops`"),
        (
            {"num_hidden_layers": 5, "sharing": {"prelude": 1, "core": 2, "loops": 3}},
            "model.sharing: has prelude .* = 7 layers, and model.change.num_hidden_layers is 5",
        ),
        ({"max_position_embeddings": 64}, "objective.max_length 128"),
        ({"vocab_size": 5}, "unknown setting `model.change.vocab_size`"),
    ],
)
def test_impossible_encoders_are_refused(change: dict[str, object], message: str) -> None:
    sharing = change.pop("sharing", "preset")
    model = {"preset": "albert-base-v2", "sharing": sharing, "change": change}
    with pytest.raises(SettingsError, match=message):
        encoder_config(resolve(PretrainingSettings, {**GOOD, "model": model}).model, 777, 128)


@pytest.mark.parametrize(
    ("preset", "way"),
    [
        ("albert-base-all-e128", SharingPlan.shared),
        ("albert-base-attention-e128", SharingPlan.attention_only),
        ("albert-base-ffn-e768", SharingPlan.feed_forward_only),
        ("albert-base-none-e64", SharingPlan.unshared),
    ],
)
@pytest.mark.parametrize("depth", [6, 12, 24])
def test_a_paper_row_keeps_its_sharing_at_another_depth(
    preset: str, way: Callable[[int], SharingPlan], depth: int
) -> None:
    choice = ModelChoice(preset=preset, change=EncoderChanges(num_hidden_layers=depth))
    assert encoder_config(choice, 777, 128).plan == way(depth)


def test_unfactorised_embeddings_follow_another_width() -> None:
    def config(preset: str, **change: Any) -> EncoderConfig:
        return encoder_config(ModelChoice(preset=preset, change=EncoderChanges(**change)), 777, 128)

    narrow = config("bert-base", hidden_size=96)
    assert narrow.embedding_size == 96 and narrow.is_bert
    assert config("bert-base", hidden_size=96, embedding_size=32).embedding_size == 32
    assert config("albert-base-v2", hidden_size=96).embedding_size == 128


def test_numbers_of_a_changed_encoder_are_read_as_everywhere() -> None:
    """YAML 1.1 parses 1e-2 as text."""
    settings = resolve(PretrainingSettings, apply_overrides(GOOD, ["model.change.initializer_range=1e-2"]))
    assert encoder_config(settings.model, 777, 128).initializer_range == 0.01
    assert yaml.safe_load(dump(settings))["model"]["change"] == {"initializer_range": 0.01}
    assert resolve(PretrainingSettings, yaml.safe_load(dump(settings))) == settings


def test_every_field_of_an_encoder_can_be_changed() -> None:
    fields = {field.name for field in dataclasses.fields(EncoderConfig)}
    elsewhere = {"plan", "vocab_size", "output", "residual_factor"}  # `model.sharing`, `output`, `residuals`
    assert set(EncoderChanges.model_fields) == fields - elsewhere | {"num_hidden_layers"}


def test_what_depths_have_besides_is_in_the_plan() -> None:
    choice = ModelChoice(preset="albert-base-v2", own=("norms",), low_rank=3)
    plan = encoder_config(choice, 777, 128).plan
    assert (plan.own, plan.low_rank) == (("norms",), 3)
