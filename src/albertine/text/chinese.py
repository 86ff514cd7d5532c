"""Chinese characters: what counts as one wherever a text is looked at as Chinese."""

from __future__ import annotations

import re

HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
"""An ideograph: the main block, the extensions and the compatibility forms."""


def is_han(character: str) -> bool:
    """Whether a character is a Chinese ideograph."""
    return HAN.match(character) is not None
