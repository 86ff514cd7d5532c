"""Children of a module are torch's own affair, but for how fast they are found."""

from __future__ import annotations

from copy import deepcopy

import pytest
from torch import nn

from albertine.model.layers import Child, Module


class Parent(Module):
    def __init__(self, bare: bool = False) -> None:
        super().__init__()
        self.inner = None if bare else nn.Linear(2, 3)


def test_a_child_is_what_torch_keeps_by_that_name() -> None:
    parent, other = Parent(), Parent()
    assert isinstance(vars(Parent)["inner"], Child)  # so no exception comes before it
    assert parent.inner is parent._modules["inner"] is not other.inner
    # As torch.ao.quantization and others replace layers, past __setattr__.
    parent._modules["inner"] = new = nn.Identity()
    assert parent.inner is new
    twin = deepcopy(parent)
    assert twin.inner is twin._modules["inner"] is not new
    parent.inner = nn.Linear(2, 2)
    assert parent.inner is parent._modules["inner"] and [n for n, _ in parent.named_children()] == ["inner"]


def test_a_child_may_be_missing_or_none() -> None:
    parent, bare = Parent(), Parent(bare=True)
    assert bare.inner is None and not list(bare.named_children())
    bare.inner = nn.Linear(2, 3)
    assert bare.inner is bare._modules["inner"]
    del parent.inner
    assert not hasattr(parent, "inner")
    with pytest.raises(AttributeError, match="'Parent' object has no attribute 'inner'"):
        _ = parent.inner
    parent.add_module("inner", nn.Identity())
    assert isinstance(parent.inner, nn.Identity)
    parent.inner = None
    assert parent.inner is None
