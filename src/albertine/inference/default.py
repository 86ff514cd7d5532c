"""Which model is asked where nobody names one: the released one of the text's language."""

from __future__ import annotations

from albertine.errors import ModelError
from albertine.released import BY_LANGUAGE, released_names
from albertine.text.sentences import guess_language

MASK = "[MASK]"
IN_WORDS = {"en": "English", "zh": "Chinese"}


def default_model(*texts: str) -> str:
    """The name of the released model for texts: the Chinese one if a fifth of their letters are Han
    characters, else the English one.

    Raises:
        ModelError: it is not installed.
    """
    language = guess_language("\n".join(texts).replace(MASK, ""))
    name = BY_LANGUAGE[language]
    if name not in released_names():
        raise ModelError(
            f"no model is named, and the released one for {IN_WORDS[language]} is not installed",
            where=name,
            remedy="Name a model folder before the text",
        )
    return name
