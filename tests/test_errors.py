"""Errors as they come from another process."""

from __future__ import annotations

import pickle

import pytest

from albertine.errors import AlbertineError, DataError, NotFinite


@pytest.mark.parametrize(
    "error",
    [NotFinite(), NotFinite("a", remedy=None), DataError("is empty", where="x.txt", remedy="Fill it")],
)
def test_an_error_of_another_process_keeps_its_text(error: AlbertineError) -> None:
    """Catches: a default remedy that is repeated."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert (again.what, again.where, again.remedy) == (error.what, error.where, error.remedy)
