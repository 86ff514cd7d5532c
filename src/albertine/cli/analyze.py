"""`albertine analyze`: states, convergence, scores and cost of models, layer by layer."""

from __future__ import annotations

from albertine.cli.analyze_attention import attention
from albertine.cli.analyze_depth import depth
from albertine.cli.analyze_exits import exits
from albertine.cli.analyze_layers import layers
from albertine.cli.analyze_lens import lens
from albertine.cli.analyze_parameters import parameters
from albertine.cli.analyze_probe import probe

GROUP = "Analyze models: states, scores and cost."
COMMANDS = (layers, attention, lens, depth, probe, exits, parameters)
