"""Parameters of every published configuration and of the paper's rows, by formula from their shapes."""

from dataclasses import replace

import pytest

from albertine.analysis.parameters import (
    MASKED_SHARE,
    memory,
    parameters_by_part,
    report,
    training_flops_per_token,
)
from albertine.model.config import EncoderConfig
from albertine.model.presets import paper_row, preset
from albertine.model.sharing import SharingPlan

# name: embeddings, mapping, encoder, pooler, MLM head, SOP, backbone no pooler, backbone, everything
TABLE = {
    "albert-base-v2": (3906048, 99072, 7087872, 590592, 128688, 1538, 11092992, 11683584, 11813810),
    "albert-large-v2": (3906048, 132096, 12596224, 1049600, 161456, 2050, 16634368, 17683968, 17847474),
    "albert-xlarge-v2": (3906048, 264192, 50358272, 4196352, 292528, 4098, 54528512, 58724864, 59021490),
    "albert-xxlarge-v2": (
        3906048,
        528384,
        201379840,
        16781312,
        554672,
        8194,
        205814272,
        222595584,
        223158450,
    ),
    "albert-tiny-zh": (2770432, 40248, 1172184, 97656, 61448, 626, 3982864, 4080520, 4142594),
    "albert-small-zh": (2770432, 49536, 1774464, 147840, 70664, 770, 4594432, 4742272, 4813706),
    "albert-base-zh": (2770432, 99072, 7087872, 590592, 119816, 1538, 9957376, 10547968, 10669322),
    "albert-large-zh": (2770432, 132096, 12596224, 1049600, 152584, 2050, 15498752, 16548352, 16702986),
    "albert-xlarge-zh": (2770432, 264192, 50358272, 4196352, 283656, 4098, 53392896, 57589248, 57877002),
    "albert-xxlarge-zh": (
        2770432,
        528384,
        201379840,
        16781312,
        545800,
        8194,
        204678656,
        221459968,
        222013962,
    ),
    "bert-base": (23837184, 0, 85054464, 590592, 622650, 1538, 108891648, 109482240, 110106428),
    "bert-large": (31782912, 0, 302309376, 1049600, 1082170, 2050, 334092288, 335141888, 336226108),
    "xlnet-base": (24576000, 0, 92141568, 0, 32768, 0, 116717568, 116717568, 116718336 + 32000),
    "xlnet-large": (32768000, 0, 327499776, 0, 33024, 0, 360267776, 360267776, 360268800 + 32000),
    "bert-base-zh": (16622592, 0, 85054464, 590592, 613256, 1538, 101677056, 102267648, 102882442),
}
PAPER = {
    ("none", 64): (87057408, 87648000),
    ("none", 128): (89059584, 89650176),
    ("none", 256): (93063936, 93654528),
    ("none", 768): (108490752, 109081344),
    ("all", 64): (9090816, 9681408),
    ("all", 128): (11092992, 11683584),
    ("all", 256): (15097344, 15687936),
    ("all", 768): (30524160, 31114752),
    ("attention", 128): (63056640, 63647232),
    ("attention", 768): (82487808, 83078400),
    ("ffn", 128): (37095936, 37686528),
    ("ffn", 768): (56527104, 57117696),
}
UNSHARED = {"albert-tiny-zh": 7597072, "albert-small-zh": 13614592, "albert-base-v2": 89650176}
# Training operations per token at length s = 512, products alone, masked share m = .15, rounded:
# 6L(4h² + 2hf) + 12Lhs + 6Eh + 6m(hE + EV)
FLOPS = {"tiny": 39e6, "small": 82e6, "base": 570e6, "large": 1.97e9, "xlarge": 7.6e9, "xxlarge": 14.8e9}


@pytest.mark.parametrize("name", TABLE)
def test_every_part_and_total_of_a_preset(name):
    found = report(preset(name))
    assert (*found.parts.values(), found.without_pooler, found.backbone, found.everything) == TABLE[name]


@pytest.mark.parametrize("size", ["base", "large", "xlarge", "xxlarge"])
def test_first_version_has_the_counts_of_the_second(size):
    assert parameters_by_part(preset(f"albert-{size}-v1")) == parameters_by_part(preset(f"albert-{size}-v2"))


@pytest.mark.parametrize(("sharing", "embedding"), PAPER)
def test_rows_of_the_paper(sharing, embedding):
    found = report(paper_row(sharing, embedding))
    assert (found.without_pooler, found.backbone) == PAPER[sharing, embedding]


@pytest.mark.parametrize("name", UNSHARED)
def test_unshared_after_conversion(name):
    config = preset(name)
    unshared = config.with_plan(SharingPlan.unshared(config.num_hidden_layers))
    assert report(unshared).backbone == UNSHARED[name]


@pytest.mark.parametrize("size", FLOPS)
def test_training_operations_per_token(size):
    config = preset(f"albert-{size}-zh" if size in ("tiny", "small") else f"albert-{size}-v2")
    assert training_flops_per_token(replace(config, vocab_size=30000), 512) == pytest.approx(
        FLOPS[size], rel=0.015
    )


def test_sharing_saves_memory_and_no_operations():
    shared, unshared = paper_row("all"), paper_row("none")
    assert training_flops_per_token(shared, 128) == training_flops_per_token(unshared, 128)
    assert memory(shared)["training_adamw"] * 7 < memory(unshared)["training_adamw"]
    assert memory(shared)["weights_int8"] < memory(shared)["weights_bfloat16"]


def small(**changes: object) -> EncoderConfig:
    base = replace(preset("albert-tiny-zh"), vocab_size=100, max_position_embeddings=16)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_parameters_of_the_other_blocks_by_hand():
    """H 312, F 1248, E 128, 4 depths, one block of each kind, two LayerNorms of 2H."""
    before = parameters_by_part(small())
    hidden, wide, depths = 312, 1248, 4
    gated = parameters_by_part(small(feed_forward="gated"))
    assert gated["encoder"] - before["encoder"] == wide * (hidden + 1)
    bare = parameters_by_part(small(biases=False))
    assert before["encoder"] - bare["encoder"] == 4 * hidden + wide + hidden + 2 * hidden
    rotary = parameters_by_part(small(positions="rotary"))
    assert before["embeddings"] - rotary["embeddings"] == 16 * 128
    pre = parameters_by_part(small(norm="pre"))
    assert pre["encoder"] - before["encoder"] == 2 * hidden
    gates = parameters_by_part(small(head_gate=True))
    assert gates["encoder"] - before["encoder"] == 12 * (hidden + 1)
    for norm in ("post", "pre"):
        own = parameters_by_part(small(output="own", norm=norm))
        assert own["mlm_head"] == hidden * 128 + 3 * 128 + 100 * 128 + 100
    own = replace(small().plan, own=("norms", "residuals", "injection"), low_rank=2)
    each = depths * (4 * hidden + 2 + 2 * 2 * 2 * hidden) + (depths - 1)
    assert parameters_by_part(small(plan=own))["encoder"] - before["encoder"] == each - 4 * hidden


def test_operations_of_the_other_blocks_by_hand():
    base = training_flops_per_token(small(), 64)
    gated = training_flops_per_token(small(feed_forward="gated"), 64)
    assert gated - base == 6 * 4 * 312 * 1248
    # Scores of 2s distances beside those of s keys, and s values that are mixed.
    relative = training_flops_per_token(small(positions="relative"), 64)
    assert relative - base == 6 * 4 * 312 * 2 * 64
    no_dense = training_flops_per_token(small(positions="relative", embedding_norm=False), 64)
    assert relative - no_dense == pytest.approx(6 * MASKED_SHARE * 312 * 128)
    gates = training_flops_per_token(small(head_gate=True), 64)
    assert gates - base == 6 * 4 * 312 * 12
    assert training_flops_per_token(small(output="own"), 64) == base
    ranked = training_flops_per_token(small(plan=replace(small().plan, low_rank=3)), 64)
    assert ranked - base == 6 * 4 * 4 * 312 * 3
