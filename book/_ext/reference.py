"""Sphinx extension: the library's docstrings as pages.

Docstrings of the library say ``name : what it is`` on one line, in sections and in lists of fields.
numpydoc takes what follows the colon for a type, so such lines are put in its form first.
"""

import re
from collections.abc import Iterator
from enum import Enum

from numpy.typing import ArrayLike
from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

SECTIONS = ("Parameters", "Attributes", "Returns", "Raises")
ENTRY = re.compile(r"(?P<names>\*{0,2}[A-Za-z_]\w*(, [A-Za-z_]\w*)*) : (?P<text>\S.*)")
NUMPY = r"~?(?:numpy\.)?"
ARRAY = re.compile(
    rf"{NUMPY}ndarray\[tuple\[~?(?:typing\.)?Any, \.\.\.\], {NUMPY}dtype\[{NUMPY}(\w+)\]\]"
)
ARRAY_LIKE = [
    stringify_annotation(ArrayLike, mode)
    for mode in ("smart", "fully-qualified-except-typing", "fully-qualified")
]
ARRAYS = {"float64": "FloatArray", "int64": "IntArray", "bool": "BoolArray"}


def arranged(lines: list[str]) -> list[str]:
    """Lines of a docstring with one-line entries in numpydoc's form, lists of fields as lists."""
    result: list[str] = []
    section = before = ""
    for block in blocks(lines):
        entry = ENTRY.fullmatch(block[0])
        if block[0] in SECTIONS:
            section = block[0]
        elif re.fullmatch("-+", block[0]) and before not in SECTIONS:
            section = ""
        if entry and section:
            # Sphinx would take the first of two words for a type
            names = entry["names"].replace(", ", ",")
            result += in_section(names, entry["text"], block[1:], section == "Raises")
        elif entry and (not before or ENTRY.fullmatch(before)):
            names = ", ".join(f"**{name}**" for name in entry["names"].split(", "))
            result += [f"* {names}: {entry['text']}", *indented(block[1:], 2)]
        else:
            result += block
        before = block[0]
    return result


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """Lines, each with the indented ones that belong to it if it is an entry."""
    place = 0
    while place < len(lines):
        end = place + 1
        if ENTRY.fullmatch(lines[place]):
            while end < len(lines) and lines[end].startswith(" "):
                end += 1
        yield lines[place:end]
        place = end


def in_section(names: str, text: str, more: list[str], plain: bool) -> list[str]:
    """One entry: its type and what it is, or (plain) what it is."""
    if not plain and names_type(text, more):
        return [f"{names} : {text}", *indented(more, 4)]
    return [names, f"    {text}", *indented(more, 4)]


def names_type(text: str, more: list[str]) -> bool:
    """Whether the text after the colon is a type: what it is then begins on the next line."""
    if not more:
        return not text.endswith(".")
    first = more[0].strip()
    return not first[:1].islower() and not (first.startswith(":") and len(text.split()) > 5)


def indented(lines: list[str], by: int) -> list[str]:
    """The same lines indented by a number of blanks."""
    return [f"{' ' * by}{line.strip()}" for line in lines]


def short(signature: str) -> str:
    """A signature with the library's names for arrays."""
    for union in ARRAY_LIKE:
        signature = signature.replace(union, "ArrayLike")
    return ARRAY.sub(lambda found: ARRAYS.get(found[1], f"NDArray[{found[1]}]"), signature)


def _docstring(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    lines[:] = arranged(lines)


def _signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    if isinstance(obj, type) and issubclass(obj, Enum):
        return "", None
    return short(signature) if signature else signature, short(returns) if returns else returns


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the above; docstrings are arranged before napoleon reads them."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.napoleon")
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
