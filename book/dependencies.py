"""What a notebook depends on: the library modules it runs through, data and stored rows."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jupytext

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "lib" / "implicitnn"


def module_file(name: str) -> Path | None:
    """File of a dotted module name of the library, None when there is no such module."""
    base = PACKAGE.parent.joinpath(*name.split("."))
    candidates = (base.with_suffix(".py"), base / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def imported(tree: ast.AST, package: str = "") -> Iterator[str]:
    """Dotted names of the library modules that a piece of code may import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, base]).rstrip(".")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def direct(path: Path) -> frozenset[Path]:
    """Library files that one library file imports."""
    inside = path.relative_to(PACKAGE.parent).with_suffix("").parts
    package = ".".join(inside[:-1])
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(files_of(imported(tree, package)))


def files_of(names: Iterator[str]) -> Iterator[Path]:
    """Files of the library among dotted names, packages on the way included."""
    for name in names:
        if name.split(".")[0] != PACKAGE.name:
            continue
        parts = name.split(".")
        for stop in range(1, len(parts) + 1):
            path = module_file(".".join(parts[:stop]))
            if path:
                yield path


def closure(start: set[Path]) -> set[Path]:
    """All library files reached from these."""
    reached: set[Path] = set()
    waiting = set(start)
    while waiting:
        path = waiting.pop()
        reached.add(path)
        waiting |= direct(path) - reached
    return reached


def studies_named(text: str) -> set[str]:
    """Studies whose name stands in a text; a study's rows and module are then inputs."""
    names = {path.stem for path in (PACKAGE / "studies").glob("*.py")} - {"__init__"}
    names |= {path.stem for path in (ROOT / "data" / "results").glob("*.jsonl")}
    return {name for name in names if re.search(rf"\b{re.escape(name)}\b", text)}


def claim_texts(text: str) -> str:
    """Text of the claims a notebook cites, so that the studies they are judged by are found."""
    claims = ROOT / "book" / "claims.yml"
    if not claims.is_file():
        return ""
    entries = re.split(r"(?m)^  - id: ", claims.read_text(encoding="utf-8"))[1:]
    words = set(re.findall(r"\w+", text))
    return "\n".join(entry for entry in entries if entry.split()[0] in words)


def of_notebook(path: Path) -> set[Path]:
    """Every committed file that can change what a notebook shows."""
    notebook = jupytext.read(path)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    code = "\n".join(cells)
    plain = "\n".join(
        line for line in code.splitlines() if not line.lstrip().startswith(("%", "!"))
    )
    files = set(files_of(imported(ast.parse(plain))))
    studies = studies_named(code + claim_texts(code))
    for study in studies:
        module = PACKAGE / "studies" / f"{study}.py"
        rows = ROOT / "data" / "results" / f"{study}.jsonl"
        files |= {found for found in (module, rows) if found.is_file()}
    python = closure({file for file in files if file.suffix == ".py"})
    names = {file.stem for file in python}
    if "datasets" in names:
        embedded = (ROOT / "data" / "embedded").rglob("*")
        files |= {file for file in embedded if file.is_file() and file.suffix != ".py"}
    if "claims" in names and (ROOT / "book" / "claims.yml").is_file():
        files.add(ROOT / "book" / "claims.yml")
    return files | python | {path, ROOT / "requirements.lock"}
