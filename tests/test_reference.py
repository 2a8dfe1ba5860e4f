"""The library's pages: every public module is there, and docstrings arrive in numpydoc's form."""

import re
import sys
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
import reference  # noqa: E402

# What serves the book and the command line alone.
INSIDE = {"__init__", "__main__", "claims", "doctor", "figures", "pages"}


def test_every_public_module_is_on_one_page():
    pages = [path.read_text() for path in sorted((ROOT / "book" / "library").glob("*.md"))]
    named = re.findall(r"automodule:: implicitnn\.(\w+)", "\n".join(pages))
    modules = {path.stem for path in (ROOT / "lib" / "implicitnn").glob("*.py")}
    assert sorted(named) == sorted(
        name for name in modules - INSIDE if name == "__init__" or not name.startswith("_")
    )


def test_one_line_entries_of_a_section_get_their_own_line():
    lines = [
        "Parameters",
        "----------",
        "a, b : the numbers, at least",
        "    zero.",
        "n : int",
        "    Count.",
    ]
    assert reference.arranged(lines) == [
        "Parameters", "----------", "a,b", "    the numbers, at least", "    zero.",
        "n : int", "    Count.",
    ]  # fmt: skip


def test_what_is_raised_is_no_type():
    lines = ["Raises", "------", "ValueError : n is negative", "    or zero."]
    assert reference.arranged(lines)[2:] == ["ValueError", "    n is negative", "    or zero."]


def test_fields_become_a_list_and_prose_stays():
    lines = [
        "Fields.",
        "",
        "low, high : ends of",
        "    the interval.",
        "n : samples.",
        "",
        "Note : this.",
    ]
    assert reference.arranged(lines) == [
        "Fields.", "", "* **low**, **high**: ends of", "  the interval.", "* **n**: samples.", "",
        "* **Note**: this.",
    ]  # fmt: skip
    prose = ["A sentence ends here", "so : nothing changes."]
    assert reference.arranged(prose) == prose


def test_code_below_a_section_is_left_alone():
    lines = ["Raises", "------", "E : why.", "", "Examples", "--------", ">>> f(1)", "a : b."]
    assert reference.arranged(lines)[-2:] == [">>> f(1)", "a : b."]


def test_arrays_have_the_names_of_the_library():
    text = "(x: ~numpy.ndarray[tuple[~typing.Any, ...], ~numpy.dtype[~numpy.float64]])"
    assert reference.short(text) == "(x: FloatArray)"
    union = reference.stringify_annotation(reference.ArrayLike, "smart")
    assert reference.short(f"(x: {union} | None)") == "(x: ArrayLike | None)"
    assert reference.short("ndarray[tuple[Any, ...], dtype[int8]]") == "NDArray[int8]"


def test_an_enumeration_shows_no_constructor():
    class Colour(Enum):
        RED = 1

    assert reference._signature(None, "class", "Colour", Colour, None, "(value)", None) == (
        "",
        None,
    )
