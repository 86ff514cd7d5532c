"""Choices that several verbs offer."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer
from typer.core import TyperCommand

from albertine.core.number_formats import InferencePrecision, Runtime


class Verb(TyperCommand):
    """A command that takes no empty word for a path: it would be the folder that one stands in."""

    def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
        rest = super().parse_args(context, [*arguments])
        if any(not word or word.endswith("=") for word in arguments):
            self._refuse_empty_paths(context, arguments)
        return rest

    def _refuse_empty_paths(self, context: Any, arguments: list[str]) -> None:
        """
        Raises:
            SettingsError: a path is empty; an empty text is one.
        """
        from albertine.core.files import EMPTY_PATH
        from albertine.errors import SettingsError

        # As they were written: a path that was made of an empty word is the same as one made of a dot.
        written, _, _ = self.make_parser(context).parse_args([*arguments])
        kinds = get_type_hints(self.callback)
        for parameter in self.params:
            given = written.get(parameter.name)
            words = given if isinstance(given, list | tuple) else [given]
            if "Path" in str(kinds.get(str(parameter.name))) and "" in words:
                option = next((name for name in parameter.opts if name.startswith("--")), None)
                where = option or parameter.metavar or str(parameter.name).upper()
                raise SettingsError(EMPTY_PATH[0], where=where.strip("[]."), remedy=EMPTY_PATH[1])


def _near_option(context: typer.Context, words: list[str] | None) -> list[str] | None:
    """Refuse what is nearly an option; other unknown ones are perhaps settings, which know what is near."""
    known = [name for parameter in context.command.params for name in parameter.opts]
    for word in words or []:
        name = word.partition("=")[0]
        if name == "--seed":
            continue  # a setting, and not --seeds
        if name.startswith("-") and (near := difflib.get_close_matches(name, known, n=1, cutoff=0.8)):
            raise typer.BadParameter(f"there is no option {name}. Did you mean {near[0]}?", context)
    return words


UNKNOWN_ARE_WORDS = {"ignore_unknown_options": True}
"""Context settings of a verb with `Overrides`: a setting that is given as an option is a word like others."""
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY.SUB=VALUE...", help="Settings, over those of --config.", callback=_near_option
    ),
]
Recipe = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="Recipe: a YAML file, or the name of one in the package, which `albertine info` lists.",
    ),
]
Resume = Annotated[
    str, typer.Option("--resume", metavar="auto|never|PATH", help="Go on with a run, or from a checkpoint.")
]
BranchFrom = Annotated[
    Path | None,
    typer.Option(
        "--branch-from",
        metavar="CHECKPOINT",
        help="Begin a new run at a checkpoint of another, with other settings: more steps, a lower rate.",
    ),
]
Texts = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT...", help="Texts; without any, lines of stdin.")
]
TextFormat = Annotated[str, typer.Option("--format", help="Format of the text; default: recognised.")]
TextField = Annotated[
    str, typer.Option("--text-field", help="Field (JSON lines) or column (Parquet) of the text.")
]
Encoding = Annotated[str, typer.Option("--encoding", help="Character encoding of text files.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
EachJson = Annotated[bool, typer.Option("--json", help="Print a JSON object for each text.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print all settings, with what each is, and stop.")]


ANY_MODEL = (
    "Model or run folder, tuned or not, released model, or owner/name[@revision] of the hub; without one, "
    "the released model of the texts' language."
)
"""Of a model that stands first among the words of a command."""
Scoring = Literal["pll", "causal"]
Language = Literal["auto", "en", "zh"]
"""Whose sentences and words; `auto` looks at the beginning of the text."""
LanguageOption = Annotated[
    Language, typer.Option("--language", help="Language of the text, for splitting sentences.")
]
VocabularyKind = Literal["sentencepiece", "wordpiece", "xlnet"]
"""How a vocabulary cuts words."""
WordEnd = Literal["pieces", "jieba"]
"""Where a Chinese word ends: at a token, or where jieba cuts."""
PrecisionOption = Annotated[
    InferencePrecision,
    typer.Option(
        "--precision",
        help="Number format of matrix products; auto: bfloat16 where the hardware has it; int8, for "
        "processors without AMX, rounds more, and makes wide models faster.",
    ),
]
RuntimeOption = Annotated[
    Runtime | None,
    typer.Option(
        "--runtime",
        help="What computes: torch; or onnx or openvino, for an exported folder or the one beside the model; "
        "auto: the fastest by `albertine doctor MODEL`. Default: torch, or what an exported folder has.",
    ),
]
ExitOption = Annotated[
    str | None,
    typer.Option(
        "--exit",
        metavar="RULE",
        help="Of a classifier tuned with training.exits: when a text needs no further layers. patience=2: "
        "two further layers predict the same; confidence=0.9: a prediction is that probable. Default: all "
        "layers.",
    ),
]
LayersOption = Annotated[
    int | None,
    typer.Option(
        "--layers",
        min=1,
        help="Compute another number of layers: other loops of a repeated core (`albertine info` names it), "
        "also more than in training; of another encoder the first layers. Default: all.",
    ),
]
BatchTokensOption = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens",
        min=1,
        help="Tokens computed at once, which bounds memory; a longer text goes alone. Default: what is "
        "fast on the device.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that is there.")]
DeviceOption = Annotated[str, typer.Option("--device", help="Where to compute: cpu, cuda.")]
RunPrecision = Annotated[
    InferencePrecision | None,
    typer.Option("--precision", help="Number format of matrix products; default: as in training."),
]
Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN|KEY.SUB=VALUE",
        help="Folders of `albertine finetune`, models or checkpoints in them, and changes to their settings, "
        "such as task.folder=FOLDER "
        "where the files have moved.",
    ),
]
Dev = Annotated[bool, typer.Option("--dev", help="The dev file alone; default: dev and test.")]
Test = Annotated[bool, typer.Option("--test", help="The test file alone.")]
OwnFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="Another file, with columns like those of the run's own files, of a data set `text` and `label` "
        "(or task.text=COLUMN and so on); its answers may be missing.",
    ),
]
