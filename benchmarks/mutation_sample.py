"""Which share of a random sample of mutants the tests of their own package find.

    git worktree add --detach ../mutants    a checkout with its own .venv, which needs coverage
    pip install cosmic-ray                  for the Python that runs this script
    python benchmarks/mutation_sample.py ../mutants mutants.json

The same command goes on where it was stopped. `PYTEST_ADDOPTS='-m "not matrix"'` leaves out what `make test`
leaves out. Mutants are those of cosmic-ray: first a place is drawn among all places of a package, then a
change that is possible there; the draw depends on package and seed alone. The tests of a package run once
under coverage. Each mutant then meets the tests that execute its statement, the fastest first, or those that
execute anything else of its file, or all tests of its package, where there are none in the process of pytest
itself. It is killed if a test fails that passes without it, or if tests take much longer than usual.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cosmic_ray.ast import Visitor, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

PACKAGES, COUNT, SEED = ("model", "objectives", "training", "corpus", "tasks"), 20, 55
GROUPS = (
    ("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"),
    ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"),
    *(("BitAnd", "BitOr"), ("Is", "IsNot"), ("Delete", "Not", "USub")),
)
"""One operator is replaced by another of its group, as a programmer might by mistake."""
UNUSED = ("ExceptionReplacer", "VariableInserter", "VariableReplacer")
SECONDS, SLICE = 300, 10  # the least time after which tests are stopped; how often that is looked at
Place = tuple[int, int]  # line, column


def is_used(operator: str) -> bool:
    name, *pair = operator.removeprefix("core/").split("_")
    return any({*pair} <= {*group} for group in GROUPS) if pair else name not in UNUSED


def left_out(source: str) -> list[tuple[Place, Place]]:
    """Beginnings and ends of annotations, type aliases, messages, assertions, `*` before arguments, and
    imports for type checkers."""
    parts: list[Any] = []
    stars: list[tuple[Place, Place]] = []
    for node in ast.walk(ast.parse(source)):
        parts += [getattr(node, name, None) for name in ("annotation", "returns")]
        match node:
            case ast.Call():
                if re.search(r"(Error|TypeVar|warn|warning|info|error|echo)$", ast.unparse(node.func)):
                    parts += [*node.args, *(one.value for one in node.keywords)]
            case ast.Assign(targets=[ast.Name(id=name)]) if re.match(r"_?[A-Z]+[a-z]|__all__", name):
                parts.append(node.value)
            case ast.Starred() | ast.keyword(arg=None):
                stars.append(((node.lineno, node.col_offset), (node.lineno, node.col_offset + 1)))
            case ast.JoinedStr() | ast.Assert() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                parts.append(node)
    spans = [((x.lineno, x.col_offset), (x.end_lineno, x.end_col_offset)) for x in parts if x is not None]
    return spans + stars


class Positions(Visitor):  # type: ignore[misc]
    """Lists where an operator applies, in the order in which cosmic-ray counts."""

    def __init__(self, operator: Any) -> None:
        self.operator, self.found = operator, []

    def visit(self, node: Any) -> Any:
        self.found += [first for first, _ in self.operator.mutation_positions(node)]
        return node


def sample(root: Path, package: str) -> list[dict[str, Any]]:
    """The mutants of a package that are drawn, each with the whole file and the lines that differ."""
    every: dict[tuple[str, int, int], list[tuple[str, int]]] = {}
    for file in sorted((root / package).rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        tree, without = get_ast(source), left_out(source)
        for operator in filter(is_used, sorted(operator_names())):
            positions = Positions(get_operator(operator)())
            positions.walk(tree)
            for occurrence, place in enumerate(positions.found):
                if not any(begin <= place < end for begin, end in without):
                    key = (file.relative_to(root).as_posix(), *place)
                    every.setdefault(key, []).append((operator, occurrence))
    draws, found = random.Random(f"{package} {SEED}"), []
    for place in draws.sample(sorted(every), 2 * COUNT):  # some are no Python, such as `+` for a lone `*`
        operator, occurrence = draws.choice(every[place])
        before = (root / place[0]).read_text(encoding="utf-8")
        after = mutate_code(before, get_operator(operator)(), occurrence)
        lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[3:]
        if len(found) < COUNT and is_python(after):
            found.append({"place": list(place), "operator": operator, "change": lines, "after": after})
    return found


def is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def run(tree: Path, tests: list[str], unstable: list[str], seconds: float = 1e9) -> str | None:
    """The first of the tests that fails, or why there is none; None where all pass."""
    deselected = [f"--deselect={one}" for one in unstable]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as names:
        names.write("\n".join(tests))
        names.flush()
        command = [*pytest_of(tree), "-x", "-rfE", *deselected, f"@{names.name}"]
        how: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
        process, spent = subprocess.Popen(command, cwd=tree, env=environment(), text=True, **how), 0.0
        try:
            # In slices, so that the time for which this program is paused does not count.
            while spent < seconds:
                begin = time.monotonic()
                try:
                    output, _ = process.communicate(timeout=SLICE)
                except subprocess.TimeoutExpired:
                    spent += SLICE
                    continue
                spent += min(SLICE, time.monotonic() - begin)
                failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.M)
                if process.returncode in (0, 5):
                    return None
                return failed[1] if failed else f"exit code {process.returncode}"
            return f"longer than {seconds:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def pytest_of(tree: Path) -> list[str]:
    return [str(tree / ".venv/bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def environment(**more: str) -> dict[str, str]:
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **quiet, "PYTHONDONTWRITEBYTECODE": "1", **more}


def executed(tree: Path, package: str, files: list[str]) -> dict[str, Any]:
    """The seconds of each test of a package, and per file and line the tests that execute it."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "executed.json"
        paths = [str(tree / "src/albertine" / one) for one in files]
        more = {"MUTATION_FILES": json.dumps(paths), "MUTATION_RESULT": str(result)}
        path = str(Path(__file__).resolve().parent)
        subprocess.run(
            [*pytest_of(tree), "-p", "mutation_coverage", f"tests/{package}"],
            cwd=tree,
            env=environment(PYTHONPATH=path, **more),
            stdout=subprocess.DEVNULL,
        )
        found = json.loads(result.read_text(encoding="utf-8"))
    lines = {one: found["lines"].get(path, {}) for one, path in zip(files, paths, strict=True)}
    return {"seconds": found["seconds"], "lines": lines}


def tests_of(tree: Path, place: list[Any], known: dict[str, Any]) -> list[str]:
    """The tests that execute the statement of a place, the fastest first; where none does (it runs at import,
    or in other processes), those that execute anything else of its file."""
    file, line, _ = place
    source = (tree / "src/albertine" / file).read_text(encoding="utf-8")
    lines = known["lines"][file]
    spans = [
        (
            min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]),
            node.body[0].lineno - 1 if getattr(node, "body", None) else node.end_lineno,
        )
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt)
    ]
    first, last = min((span for span in spans if span[0] <= line <= span[1]), key=lambda s: s[1] - s[0])
    found = {test for number in range(first, last + 1) for test in lines.get(str(number), ()) if test}
    found = found or {test for every in lines.values() for test in every if test}
    return sorted(found, key=lambda test: known["seconds"].get(test, 0.0))


def judge(tree: Path, mutant: dict[str, Any], known: dict[str, Any], save: Path) -> str | None:
    """What kills a mutant."""
    module = Path(mutant["place"][0])
    file, package = tree / "src/albertine" / module, module.parts[0]
    before, unstable = file.read_text(encoding="utf-8"), known["unstable"]
    seconds = known["executed"][package]["seconds"]
    tests = tests_of(tree, mutant["place"], known["executed"][package])
    mutant["tests"] = len(tests)
    usual = sum(seconds.get(one, 0.0) for one in tests or seconds)
    while True:
        try:
            file.write_text(mutant["after"], encoding="utf-8")
            killer = run(tree, tests or [f"tests/{package}"], unstable, max(SECONDS, 8 * usual))
        finally:
            file.write_text(before, encoding="utf-8")
        if killer is None or "::" not in killer or run(tree, [killer], []) is None:
            return killer
        unstable.append(killer)
        write(save, known)


def write(save: Path, known: dict[str, Any]) -> None:
    save.with_suffix(".new").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    save.with_suffix(".new").replace(save)


def main(tree: Path, save: Path) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by which files are put back
    git = ["git", "-C", str(tree)]
    subprocess.run([*git, "checkout", "--quiet", "--", "src"], check=True)  # what a kill left changed
    commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    known: dict[str, Any] = {"commit": commit, "executed": {}, "unstable": [], "mutants": []}
    if save.exists():
        known = json.loads(save.read_text(encoding="utf-8"))
        assert known["commit"] == commit, f"{save} is of commit {known['commit']}"
    mutants = {package: sample(tree / "src/albertine", package) for package in PACKAGES}
    for package, drawn in mutants.items():
        if package not in known["executed"]:
            files = sorted({one["place"][0] for one in drawn})
            known["executed"][package] = executed(tree, package, files)
            write(save, known)
    done = [(one["place"], one["operator"]) for one in known["mutants"]]
    # One of each package in turn, so that an unfinished run has results of all packages.
    for turn in zip(*mutants.values(), strict=True):
        for mutant in turn:
            if (mutant["place"], mutant["operator"]) in done:
                continue
            began, killer = time.time(), judge(tree, mutant, known, save)
            mutant |= {"killed": killer is not None, "by": killer, "seconds": round(time.time() - began)}
            known["mutants"].append({name: value for name, value in mutant.items() if name != "after"})
            write(save, known)
            print(*mutant["place"], *mutant["change"], mutant["killed"], killer, flush=True)
    for package in PACKAGES:
        own = [one["killed"] for one in known["mutants"] if one["place"][0].startswith(f"{package}/")]
        print(f"{package}: {sum(own)} of {len(own)} killed")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
