"""The products are made once for all parts."""

from __future__ import annotations

import pytest

from tests.contracts.products import Products, make


@pytest.fixture(scope="session")
def products(tmp_path_factory: pytest.TempPathFactory) -> Products:
    return make(tmp_path_factory.mktemp("products"))
