"""What a result depends on: a hash of the code it runs through, versions, machine."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import platform
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import joblib

# The harness runs rows and does not compute them: its edits leave results valid.
HARNESS = frozenset(
    f"implicitnn.{m}"
    for m in ("sweeps", "_runs.sweep", "_runs.study", "_runs.rows", "_runs.execute")
)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Library:
    """A package on disk, looked up by file, never imported."""

    name: str
    folder: Path

    def __post_init__(self) -> None:
        if self.folder.name != self.name or not (self.folder / "__init__.py").is_file():
            raise ValueError(f"folder must be the package {self.name!r}, got {self.folder}")

    def file(self, module: str) -> Path | None:
        """Return the source file of ``module``, or None when it is not part of the package."""
        if module != self.name and not module.startswith(self.name + "."):
            return None
        path = self.folder.joinpath(*module.split(".")[1:])
        for candidate in (path / "__init__.py", path.with_suffix(".py")):
            if candidate.is_file():
                return candidate
        return None

    def is_package(self, module: str) -> bool:
        """Return whether ``module`` is a package (has an ``__init__.py``)."""
        path = self.file(module)
        return path is not None and path.name == "__init__.py"


LIBRARY = Library("implicitnn", Path(__file__).resolve().parents[1])


def tree(source: str) -> ast.Module:
    """Parse ``source`` and drop docstrings; comments and layout are no part of a syntax tree."""
    module = ast.parse(source)
    for node in ast.walk(module):
        if isinstance(node, ast.Module | Definition):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    return module


def digest(parts: Iterable[str]) -> str:
    """Return the first 16 hex digits of the SHA-256 of ``parts``, each with its length."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode()
        total.update(f"{len(data)}:".encode() + data)
    return total.hexdigest()[:16]


@cache
def _parsed(path: Path, stamp: tuple[int, int]) -> ast.Module:
    return tree(path.read_text(encoding="utf-8"))


def _module_tree(path: Path) -> ast.Module:
    stat = path.stat()
    return _parsed(path, (stat.st_mtime_ns, stat.st_size))


@cache
def _written(path: Path, stamp: tuple[int, int]) -> str:
    return ast.unparse(_parsed(path, stamp))


def _module_text(path: Path) -> str:
    stat = path.stat()
    return _written(path, (stat.st_mtime_ns, stat.st_size))


def _imports(nodes: Iterable[ast.AST], module: str, package: bool) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for each import in ``nodes``; name is '' for a plain import."""
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Import):
                for alias in inner.names:
                    yield alias.name, ""
            elif isinstance(inner, ast.ImportFrom):
                base = inner.module or ""
                if inner.level:
                    parts = module.split(".")
                    kept = len(parts) - inner.level + (1 if package else 0)
                    base = ".".join([*parts[:kept], *([base] if base else [])])
                for alias in inner.names:
                    yield base, alias.name


def _targets(base: str, name: str, library: Library) -> Iterator[str]:
    """Yield the library modules that ``from base import name`` reads.

    A package's ``__init__`` is passed through: only the module that defines the name counts, so
    that a package listing its members does not tie them together.
    """
    if library.file(base) is None:
        return
    if name and library.file(f"{base}.{name}") is not None:
        yield f"{base}.{name}"
        return
    if not name or name == "*" or not library.is_package(base):
        yield base
        return
    path = library.file(base)
    assert path is not None
    for node in _module_tree(path).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    single = ast.ImportFrom(node.module, [alias], node.level)
                    for inner_base, inner_name in _imports([single], base, True):
                        yield from _targets(inner_base, inner_name, library)
                    return
    yield base


def closure(modules: Iterable[str], library: Library = LIBRARY) -> list[str]:
    """Return every library module reached from ``modules`` by static imports, sorted."""
    found: set[str] = set()
    waiting = [m for m in modules if library.file(m) is not None]
    while waiting:
        module = waiting.pop()
        if module in found or module in HARNESS:
            continue
        found.add(module)
        path = library.file(module)
        assert path is not None
        body = _module_tree(path).body
        for base, name in _imports(body, module, library.is_package(module)):
            waiting.extend(_targets(base, name, library))
    return sorted(found)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _bound(node: ast.stmt) -> set[str] | None:
    """Return the names a top-level statement binds, or None when it must always be kept."""
    if isinstance(node, Definition):
        return {node.name}
    if isinstance(node, ast.Import):
        return {(a.asname or a.name).split(".")[0] for a in node.names}
    if isinstance(node, ast.ImportFrom):
        return None if node.names[0].name == "*" else {a.asname or a.name for a in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if all(isinstance(t, ast.Name | ast.Tuple) for t in targets):
            return set().union(*(_names(t) for t in targets))
    return None


def _single_imports(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (ast.Import([alias]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            yield from (ast.ImportFrom(node.module, [a], node.level) for a in node.names)
        elif not isinstance(node, ast.ImportFrom):
            yield node


def reachable(module: ast.Module, name: str) -> list[ast.stmt]:
    """Return the top-level statements that ``name`` depends on, in their order.

    A study's grid, defined beside its row function, is thus no part of the row's code.
    """
    body = list(_single_imports(module.body))
    bound = [_bound(node) for node in body]
    if not any(name in (names or ()) for names in bound):
        raise ValueError(f"no top-level definition of {name!r} in its module")
    kept = {i for i, names in enumerate(bound) if names is None}
    wanted = {name}.union(*(_names(body[i]) for i in kept))
    while True:
        new = {i for i, names in enumerate(bound) if i not in kept and (names or set()) & wanted}
        if not new:
            return [body[i] for i in sorted(kept)]
        kept |= new
        wanted = wanted.union(*(_names(body[i]) for i in new))


def qualified_name(function: Callable[..., Any]) -> str:
    """Return ``module:name`` of a top-level function; lambdas and nested functions are refused."""
    name = getattr(function, "__qualname__", None)
    if not inspect.isfunction(inspect.unwrap(function)) or not isinstance(name, str):
        raise TypeError(f"function must be a plain Python function, got {function!r}")
    if "<" in name or "." in name:
        raise ValueError(
            f"function must be defined at the top level of a module or notebook, got {name!r}: "
            "the code of a lambda or nested function cannot be told apart from its surroundings"
        )
    return f"{function.__module__}:{name}"


def _live(function: types.FunctionType, seen: set[str]) -> tuple[list[str], set[str]]:
    """Return (source texts, library modules) of a function typed in a notebook."""
    seen.add(function.__name__)
    source = tree(textwrap.dedent(inspect.getsource(function)))
    texts, modules = [ast.unparse(source)], set[str]()
    modules |= {m for base, n in _imports([source], "", False) for m in _targets(base, n, LIBRARY)}
    for name in sorted(_names(source) & set(function.__globals__) - seen):
        value = function.__globals__[name]
        origin = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", "")
        if inspect.isfunction(value) and value.__module__ == function.__module__:
            more, reached = _live(value, seen)
            texts += more
            modules |= reached
        elif value is None or isinstance(value, bool | int | float | str | tuple):
            texts.append(f"{name} = {value!r}")
        elif home := _home(value, name):
            modules.add(home)
        elif inspect.ismodule(value) or (origin and origin != function.__module__):
            texts.append(f"{name}: {origin}")
        else:
            raise ValueError(
                f"{function.__name__} reads the global {name!r} ({type(value).__name__}), whose "
                "value cannot be recorded: pass it through the settings or build it inside"
            )
    return texts, modules


def _home(value: object, name: str) -> str | None:
    """Return the library module that ``value`` is, or is defined in."""
    origin = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
    if isinstance(origin, str) and LIBRARY.file(origin) is not None:
        holder = sys.modules.get(origin)
        if inspect.ismodule(value) or vars(holder or object()).get(name) is value:
            return origin
        if inspect.isclass(value) or inspect.isroutine(value):
            return origin
    for module in sorted(m for m in sys.modules if LIBRARY.file(m) is not None):
        if getattr(sys.modules[module], name, None) is value:
            return module
    return None


def code_parts(function: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Return (source texts of the function's own module, library modules it runs through)."""
    _, name = qualified_name(function).split(":")
    plain = inspect.unwrap(function)
    assert isinstance(plain, types.FunctionType)
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    if file is None or not _same_file(file, plain.__code__.co_filename):
        texts, reached = _live(plain, set())
        return texts, closure(reached)
    own = function.__module__
    kept = reachable(_module_tree(Path(file)), name)
    package = Path(file).name == "__init__.py"
    starts = [m for base, n in _imports(kept, own, package) for m in _targets(base, n, LIBRARY)]
    return [ast.unparse(node) for node in kept], closure(starts)


def _same_file(first: str, second: str) -> bool:
    return Path(second).is_file() and Path(first).resolve() == Path(second).resolve()


def code_hash(function: Callable[..., Any]) -> str:
    """Return the hash of all code that ``function`` runs through.

    That is: the definitions it reaches in its own module, and every library module in the static
    import closure, as syntax trees without comments and docstrings.
    """
    texts, modules = code_parts(function)
    parts = list(texts)
    for module in modules:
        path = LIBRARY.file(module)
        assert path is not None
        parts += [module, _module_text(path)]
    return digest(parts)


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the numerical packages that are installed."""
    found = {"python": platform.python_version()}
    for name in ("implicitnn", "numpy", "scipy", "numba", "scikit-learn", "torch"):
        if importlib.util.find_spec("sklearn" if name == "scikit-learn" else name) is None:
            continue
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "source"
    return found


@cache
def machine() -> dict[str, str | int]:
    """Return the processor's name, the cores this process may use, and the system."""
    return {
        "cpu": _cpu(),
        "cores": int(joblib.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
