"""Fixtures for the whole suite."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# As `make test` has it. A test that forks after torch has begun its threads would wait for them for ever.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The time of an example has no meaning on a machine that runs other programs too.
hypothesis.settings.register_profile("test", deadline=None, max_examples=40)
hypothesis.settings.register_profile("test-all", deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    """Draws fewer examples in `make test`, where a test does not set their number."""
    hypothesis.settings.load_profile("test" if config.option.markexpr == "not matrix" else "test-all")


# A suite that a script started in the background inherits an ignored Ctrl-C, and so would what it tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def named(cases: list[pytest.Function], name: str) -> list[pytest.Function]:
    """The cases of one test whose id is this name, or else those whose id contains it."""
    same = [case for case in cases if case.callspec.id == name]
    return same or [case for case in cases if name in case.callspec.id]


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Refuses a name of `sample` that no case has, before the command line selects cases."""
    made = yield
    cases = made if isinstance(made, list) else []  # of one test
    mark = cases[0].get_closest_marker("sample") if cases else None
    for name in mark.kwargs.get("keep", ()) if mark else ():
        if not named(cases, name):
            raise pytest.UsageError(f"{cases[0].originalname}: no case has the name {name!r} of its `sample`")
    return made


def sampled(
    cases: list[pytest.Function], count: int | None = None, keep: Sequence[str] = ()
) -> list[pytest.Function]:
    """A fixed sample of the cases of one test.

    Args:
        count: how many; None for as few as contain every value of every parameter.
        keep: names of cases that are in it (`named`), counted in `count`.
    """
    values = {case: {(name, id(value)) for name, value in case.callspec.params.items()} for case in cases}
    remaining = sorted(cases, key=lambda case: hashlib.sha256(case.name.encode()).digest())
    sample = [case for case in remaining if any(case in named(cases, name) for name in keep)]
    remaining = [case for case in remaining if case not in sample]
    unseen = set().union(*values.values()).difference(*(values[case] for case in sample))
    while remaining and (len(sample) < count if count is not None else unseen):
        best = max(remaining, key=lambda case: len(unseen & values[case]))
        unseen -= values[best]
        sample.append(best)
        remaining.remove(best)
    return sample


# Files of few tests that take long. A worker that got one of them last would let the others wait.
FIRST = {
    f"{name}.py"
    for name in (
        "core/test_torch_import",
        "export/test_archive",
        "export/test_openvino",
        "export/test_sentence_backend",
        "objectives/test_streams_beside_transformers",
        "pretraining/test_cuda_graphs",
        "pretraining/test_equilibrium",
        "pretraining/test_pondering",
        "pretraining/test_processes",
        "pretraining/test_stream_scores",
        "study/test_kills",
        "tasks/test_checkpoint_models",
        "tasks/test_crf",
        "tasks/test_new_family",
        "tasks/test_processes",
        "tasks/test_rotary",
        "test_example",
        "test_packages",
        "training/test_distributed",
        "training/test_kill",
    )
}


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks as `matrix` what the mark `sample` leaves to `make test-all`; puts long files first.

    pytest-xdist sorts files by their number of tests alone."""
    size = Counter(item.path for item in items)
    here = Path(__file__).parent
    items.sort(key=lambda item: (item.path.relative_to(here).as_posix() not in FIRST, -size[item.path]))
    tests = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sample"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        mark = cases[0].get_closest_marker("sample")
        assert mark is not None
        kept = sampled(cases, *mark.args, **mark.kwargs)
        for case in cases:
            if case not in kept:
                case.add_marker("matrix")


PNG = b"\x89PNG\r\n\x1a\n"
SVG = b"<svg viewBox='0 0 1 1'></svg>"
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout; tests that need it are skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("real data sets (../shared/data) are not on this machine")
    return SHARED_DATA


@pytest.fixture(autouse=True)
def as_many_threads_as_before() -> Iterator[None]:
    """Restores the number of threads after a command: training results depend on it bit for bit."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    yield
    if before is not None and torch is not None and torch.get_num_threads() != before:
        torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def no_stack_of_a_seed() -> Iterator[None]:
    """torch.manual_seed notes the stack for each kind of device that is absent: a fifth of a toy run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traceback, "format_stack", lambda *_, **__: [])
        yield


@pytest.fixture(autouse=True, scope="session")
def no_wait_for_the_disk() -> Iterator[None]:
    """Toy runs write thousands of files that need not survive a loss of power. `tests.crashes.Disk` counts
    what is flushed without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # an error where the handle is none
        yield


@pytest.fixture(autouse=True)
def blank_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing curves would take most of the time of a toy run: only tests with the mark `pictures` draw."""
    figure = sys.modules.get("matplotlib.figure")
    if figure is None or request.node.get_closest_marker("pictures"):
        return
    monkeypatch.setattr(
        figure.Figure,
        "savefig",
        lambda self, path, **_: Path(path).write_bytes(SVG if str(path).endswith(".svg") else PNG),
    )


@pytest.fixture
def products_in_int8() -> Iterator[None]:
    """On a busy machine every kernel may have been timed as slower than float32."""
    from albertine.model.backend.autotune import fixed

    with fixed(int8="unsigned"):
        yield


@pytest.fixture
def lengths_from_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows on a processor take no lengths from a batch, as those on a GPU: it may be padded, and only an
    upper bound of them is known."""
    from albertine.model.rows import Rows

    def lengths(rows: Rows) -> tuple[int, ...]:
        return tuple(rows.cu_seqlens.diff().tolist())

    monkeypatch.setattr(Rows, "known_lengths", lengths)
