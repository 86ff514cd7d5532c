"""Citations for a model: ALBERT, and the paper of its architecture."""

from __future__ import annotations

from typing import NamedTuple


class Paper(NamedTuple):
    """The fields of a bibliography entry."""

    key: str
    title: str
    authors: str
    where: str
    year: int
    arxiv: str


PAPERS = {
    "albert": Paper(
        "lan2020albert",
        "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
        "Lan, Zhenzhong and Chen, Mingda and Goodman, Sebastian and Gimpel, Kevin and Sharma, Piyush "
        "and Soricut, Radu",
        "ICLR",
        2020,
        "1909.11942",
    ),
    "bert": Paper(
        "devlin2019bert",
        "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
        "Devlin, Jacob and Chang, Ming-Wei and Lee, Kenton and Toutanova, Kristina",
        "NAACL",
        2019,
        "1810.04805",
    ),
    "xlnet": Paper(
        "yang2019xlnet",
        "XLNet: Generalized Autoregressive Pretraining for Language Understanding",
        "Yang, Zhilin and Dai, Zihang and Yang, Yiming and Carbonell, Jaime and Salakhutdinov, Ruslan "
        "and Le, Quoc V.",
        "NeurIPS",
        2019,
        "1906.08237",
    ),
    "roformer": Paper(
        "su2021roformer",
        "RoFormer: Enhanced Transformer with Rotary Position Embedding",
        "Su, Jianlin and Lu, Yu and Pan, Shengfeng and Murtadha, Ahmed and Wen, Bo and Liu, Yunfeng",
        "arXiv",
        2021,
        "2104.09864",
    ),
    "electra": Paper(
        "clark2020electra",
        "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators",
        "Clark, Kevin and Luong, Minh-Thang and Le, Quoc V. and Manning, Christopher D.",
        "ICLR",
        2020,
        "2003.10555",
    ),
    "modernbert": Paper(
        "warner2024modernbert",
        "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory Efficient, and "
        "Long Context Finetuning and Inference",
        "Warner, Benjamin and Chaffin, Antoine and Clavi{\\'e}, Benjamin and others",
        "arXiv",
        2024,
        "2412.13663",
    ),
}
"""By model_type."""


def citation(kind: str) -> str:
    """BibTeX of what a model of this model_type owes, in Markdown."""
    entries = []
    for name in dict.fromkeys(("albert", kind if kind in PAPERS else "albert")):
        paper = PAPERS[name]
        entries.append(
            f"@inproceedings{{{paper.key},\n  title = {{{paper.title}}},\n  author = {{{paper.authors}}},\n"
            f"  booktitle = {{{paper.where}}},\n  year = {{{paper.year}}},\n  eprint = {{{paper.arxiv}}},\n"
            "  archivePrefix = {arXiv},\n}"
        )
    return "```bibtex\n" + "\n\n".join(entries) + "\n```"
