"""Suites of minimal pairs, read from their original files: BLiMP (English) and SLING (Chinese).

A minimal pair is an acceptable sentence and a minimally different unacceptable one, which a language model
should find less likely. A paradigm is a file of pairs of one kind, a phenomenon a group of paradigms. The
files are in a folder as published or in an archive (.tar, .tar.xz, .tar.gz) in that folder.

Sources: BLiMP, Warstadt et al. 2020, github.com/alexwarstadt/blimp; SLING, Song et al. 2022, arXiv
2210.11689, github.com/Yixiao-Song/SLING_Data_Code.
"""

from __future__ import annotations

import json
import lzma
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from albertine.errors import DataError
from albertine.text.cleaning import check_well_formed

SUMMARY = "models_summary"  # BLiMP's own results: one line per paradigm, the last for all
MODELS = {"ngram": "5-gram", "lstm": "LSTM", "txl": "Transformer-XL", "gpt2": "GPT-2"}
READ = 1 << 20
"""Bytes of an archive per read."""
PAIRS, ASIDE = 1000, 40
"""Pairs of a published file, and of one of the phenomenon that is not in the mean."""


class MinimalPair(NamedTuple):
    """An acceptable sentence and one that is not."""

    good: str
    bad: str


@dataclass(frozen=True)
class Paradigm:
    """The pairs of one file.

    Attributes:
        name: of the file. phenomenon: that it belongs to.
        published: accuracy by the name of a model or "human"; empty where none is published per paradigm.
    """

    name: str
    phenomenon: str
    pairs: tuple[MinimalPair, ...]
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PairSuite:
    """A suite.

    Attributes:
        published: accuracy over the whole suite by the name of a model or "human".
        aside: a phenomenon that is excluded from the mean over the suite, or "".
        published_by: the authors' score: the "sum" over the tokens of a sentence, or "perplexity", the mean.
    """

    name: str
    paradigms: tuple[Paradigm, ...]
    published: Mapping[str, float]
    aside: str = ""
    published_by: Literal["sum", "perplexity"] = "sum"


@dataclass(frozen=True)
class _Known:
    """A suite without its files: their names by phenomenon, and published accuracies."""

    title: str
    files: Mapping[str, str]
    published: Mapping[str, float]
    aside: str = ""
    published_by: Literal["sum", "perplexity"] = "sum"

    @property
    def phenomenon_of(self) -> dict[str, str]:
        return {name: phenomenon for phenomenon, names in self.files.items() for name in names.split()}


# Phenomena as in the paper and its results; the files call two of argument structure "s-selection".
BLIMP = {
    "anaphor_agreement": "anaphor_gender_agreement anaphor_number_agreement",
    "argument_structure": "animate_subject_passive animate_subject_trans causative drop_argument inchoative "
    "intransitive passive_1 passive_2 transitive",
    "binding": "principle_A_c_command principle_A_case_1 principle_A_case_2 principle_A_domain_1 "
    "principle_A_domain_2 principle_A_domain_3 principle_A_reconstruction",
    "control_raising": "existential_there_object_raising existential_there_subject_raising "
    "expletive_it_object_raising tough_vs_raising_1 tough_vs_raising_2",
    "determiner_noun_agreement": "determiner_noun_agreement_1 determiner_noun_agreement_2 "
    "determiner_noun_agreement_irregular_1 determiner_noun_agreement_irregular_2 "
    "determiner_noun_agreement_with_adj_2 determiner_noun_agreement_with_adj_irregular_1 "
    "determiner_noun_agreement_with_adj_irregular_2 determiner_noun_agreement_with_adjective_1",
    "ellipsis": "ellipsis_n_bar_1 ellipsis_n_bar_2",
    "filler_gap_dependency": "wh_questions_object_gap wh_questions_subject_gap "
    "wh_questions_subject_gap_long_distance wh_vs_that_no_gap wh_vs_that_no_gap_long_distance "
    "wh_vs_that_with_gap wh_vs_that_with_gap_long_distance",
    "irregular_forms": "irregular_past_participle_adjectives irregular_past_participle_verbs",
    "island_effects": "adjunct_island complex_NP_island coordinate_structure_constraint_complex_left_branch "
    "coordinate_structure_constraint_object_extraction left_branch_island_echo_question "
    "left_branch_island_simple_question sentential_subject_island wh_island",
    "npi_licensing": "matrix_question_npi_licensor_present npi_present_1 npi_present_2 "
    "only_npi_licensor_present only_npi_scope sentential_negation_npi_licensor_present "
    "sentential_negation_npi_scope",
    "quantifiers": "existential_there_quantifiers_1 existential_there_quantifiers_2 "
    "superlative_quantifiers_1 superlative_quantifiers_2",
    "subject_verb_agreement": "distractor_agreement_relational_noun distractor_agreement_relative_clause "
    "irregular_plural_subject_verb_agreement_1 irregular_plural_subject_verb_agreement_2 "
    "regular_plural_subject_verb_agreement_1 regular_plural_subject_verb_agreement_2",
}
SLING = {
    "alternative_question": "haishi_ma",
    "anaphor_gender": "baseline_female baseline_male pp_female pp_male self_female self_male",
    "anaphor_number": "baseline_cl_female baseline_cl_male baseline_cl_men_female baseline_cl_men_male "
    "baseline_men_female baseline_men_male cl_men_self_female cl_men_self_male cl_self_female cl_self_male "
    "menself_female menself_male",
    "aspect": "temporal_guo temporal_le zai_guo zai_le zai_no_le",
    "classifier_noun": "cl_adj_comp_noun cl_adj_comp_noun_v2 cl_adj_simple_noun cl_comp_noun cl_comp_noun_v2 "
    "cl_simple_noun dem_cl_swap",
    "definiteness_effect": "definiteness_demonstrative definiteness_every",
    "polarity_item": "any even_wh more_or_less",
    "relative_clause": "rc_resumptive_noun rc_resumptive_pronoun",
    "wh_fronting": "bare_wh mod_wh",
    # 40 pairs per file where the others have 1,000: too noisy for a mean over files.
    "reflexive": "ambiguous_binding animacy animacy_baseline blocking nonreflex_verb reflex_verb "
    "subj_orientation natural_animacy natural_blocking natural_local_binding_f natural_local_binding_m "
    "natural_nonreflex_verb natural_reflx_verb natural_subj_orientation",
}
SUITES = {
    # The line "overall" of BLiMP's own summary, for a folder that lacks it.
    "blimp": _Known("BLiMP", BLIMP, {"5-gram": 0.612, "LSTM": 0.698, "Transformer-XL": 0.696, "GPT-2": 0.83}),
    "sling": _Known(
        "SLING",
        SLING,
        {"mean of 18 models": 0.697, "BERT-base-zh": 0.848, "human": 0.971},
        aside="reflexive",
        published_by="perplexity",  # the default of its own code
    ),
}


def read_suite(name: str, folder: Path, *, limit: int | None = None) -> PairSuite:
    """A suite from the folder of its original files.

    Args:
        name: "blimp" or "sling".
        limit: maximum pairs of a paradigm, evenly spaced in its file; None: all.

    Raises:
        DataError: an unknown suite or no folder, or files that are missing, truncated, malformed, or
        duplicated
            with different content.
    """
    if name not in SUITES:
        raise DataError(f"there is no suite `{name}`", remedy=f"Known suites: {', '.join(SUITES)}")
    known = SUITES[name]
    if not folder.is_dir():
        raise DataError(
            "is no folder", where=folder, remedy=f"Name the folder of the original files of {known.title}"
        )
    phenomenon_of = known.phenomenon_of
    texts = _texts(folder, {*phenomenon_of, SUMMARY})
    if missing := sorted(phenomenon_of.keys() - texts.keys()):
        shown = ", ".join(f"{file}.jsonl" for file in missing[:8]) + (" …" if len(missing) > 8 else "")
        raise DataError(
            f"lacks {len(missing)} of the {len(phenomenon_of)} files of {known.title}: {shown}",
            where=folder,
            remedy="Name the folder of the original files, whole, or the one that holds their archive",
        )
    own = _published(*texts[SUMMARY]) if SUMMARY in texts else {}
    paradigms = []
    for file, phenomenon in phenomenon_of.items():
        pairs = _pairs(*texts[file], least=ASIDE if phenomenon == known.aside else PAIRS)
        paradigms.append(Paradigm(file, phenomenon, tuple(_spread(pairs, limit)), own.get(file, {})))
    published = own.get("overall", known.published)
    return PairSuite(known.title, tuple(paradigms), published, known.aside, known.published_by)


def _texts(folder: Path, wanted: set[str]) -> dict[str, tuple[str, str]]:
    """Path and text of each wanted file."""
    found: dict[str, tuple[str, str]] = {}
    for where, text in _all_texts(folder, wanted):
        first, same = found.setdefault(PurePosixPath(where).stem, (where, text))
        if text.splitlines() != same.splitlines():
            raise DataError(
                f"differs from {first}, another file of that name",
                where=where,
                remedy="Name the folder that holds one edition of the suite alone",
            )
    return found


def _all_texts(folder: Path, wanted: set[str]) -> Iterator[tuple[str, str]]:
    """Paths and texts of files with these names; a name may occur more than once."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".jsonl" and path.is_file() and _is_of(path.relative_to(folder).as_posix(), wanted):
            try:
                data = path.read_bytes()
            except OSError as error:
                raise DataError(
                    f"cannot be read ({error.strerror or error})",
                    where=path,
                    remedy="Check its permissions and the disk that it lies on, or copy the file again",
                ) from error
            yield path.as_posix(), _decoded(data, str(path))
        elif ".tar" in path.suffixes and path.is_file():
            yield from _members(path, wanted)


def _members(path: Path, wanted: set[str]) -> Iterator[tuple[str, str]]:
    try:
        with tarfile.open(path) as tar:
            found = [
                (f"{path}:{member.name}", content.read())
                for member in tar
                if member.isfile() and _is_of(member.name, wanted) and (content := tar.extractfile(member))
            ]
            while tar.fileobj and tar.fileobj.read(READ):  # read to the end, where the checksum is
                pass
    except (tarfile.TarError, OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"is not a readable archive ({error})", where=path) from error
    for where, data in found:
        yield where, _decoded(data, where)


def _is_of(name: str, wanted: set[str]) -> bool:
    """Whether a path is that of a wanted file; result files of models may have the names of paradigms."""
    path = PurePosixPath(name)
    results = any(part.startswith("raw_results") for part in path.parts)
    return path.suffix == ".jsonl" and path.stem in wanted and (path.stem == SUMMARY or not results)


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"is not UTF-8 text ({error})", where=where) from error


def _lines(where: str, text: str) -> Iterator[tuple[str, dict[str, object]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                read = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"is not JSON ({error})", where=f"{where}, line {number}") from error
            if not isinstance(read, dict):
                raise DataError("is not a JSON object", where=f"{where}, line {number}")
            yield f"{where}, line {number}", read


def _pairs(where: str, text: str, *, least: int) -> list[MinimalPair]:
    pairs = []
    for place, line in _lines(where, text):
        good, bad = line.get("sentence_good"), line.get("sentence_bad")
        if not (isinstance(good, str) and isinstance(bad, str) and good.strip() and bad.strip()):
            raise DataError("has no texts `sentence_good` and `sentence_bad`", where=place)
        pairs.append(MinimalPair(check_well_formed(good, place), check_well_formed(bad, place)))
    if not pairs:
        raise DataError("holds no pair", where=where)
    if len(pairs) < least:
        raise DataError(
            f"holds {len(pairs):,} of {least:,} pairs",
            where=where,
            remedy="Copy the original file again; for fewer pairs of each file there is --limit",
        )
    return pairs


def _spread(pairs: list[MinimalPair], limit: int | None) -> list[MinimalPair]:
    if limit is None or limit >= len(pairs):
        return pairs
    return [pairs[i * len(pairs) // limit] for i in range(limit)]


def _published(where: str, text: str) -> dict[str, dict[str, float]]:
    """BLiMP's own results by paradigm and "overall"."""
    return {
        str(line.get("UID")): {
            title: float(value)
            for key, title in MODELS.items()
            if isinstance(value := line.get(key), int | float)
        }
        for _, line in _lines(where, text)
    }
