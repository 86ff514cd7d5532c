"""What kpe's bert-for-tf2 computes with the checkpoints that are written here, for Google's two and
brightmart's architecture."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine.interop.tensorflow.checkpoints import save_checkpoint
from albertine.model.sharing import SharingPlan
from tests.model import builders

ORACLE = Path(__file__).with_name("tensorflow") / "kpe_oracle.py"


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "wanted", "changes"),
    [
        ("albert", "google", {}),
        ("bert", "google", {"plan": SharingPlan.unshared(3), "embedding_size": 24}),
        ("brightmart", "brightmart", {"embedding_mapping": "words"}),
    ],
)
def test_states(name: str, wanted: str, changes: dict[str, Any], tmp_path: Path) -> None:
    python = os.environ.get("ALBERTINE_KPE")
    if not python:
        pytest.skip("ALBERTINE_KPE names no Python with bert-for-tf2==0.14.9 and tensorflow-cpu==2.15.1")
    model, folder = builders.model(**changes), tmp_path / name
    save_checkpoint(model, None, folder, wanted)
    subprocess.run([python, ORACLE, folder, tmp_path / "out.npz"], check=True)
    found = {part: torch.from_numpy(x) for part, x in np.load(tmp_path / "out.npz").items()}
    assert found["left"] == 0  # every variable of its own has a value of ours
    out = model(found["ids"].long(), found["mask"], found["segments"].long()).last_hidden_state
    real = found["mask"].bool()
    torch.testing.assert_close(out[real], found["sequence"][real], atol=1e-5, rtol=1e-5)
