"""Fixtures for the whole suite."""

from __future__ import annotations

import signal
from pathlib import Path

import hypothesis
import pytest

# How long an example takes says nothing on a machine that does other things too.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# A suite that a script started in the background inherits an ignored Ctrl-C, and so would what it tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout; tests that need it are skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("real data sets (../shared/data) are not on this machine")
    return SHARED_DATA
