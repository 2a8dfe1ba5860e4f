"""Checks of a finished build: no page is missing, and executing pages again gives the same numbers.

Usage: python book/check_build.py pages | twice --commit HASH [--count 2]
"""

import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path

import yaml

from build_book import BOOK, BUILD, HTML, LAST, documents, execute, names


def missing_pages() -> list[str]:
    """Pages of the table of contents that the site lacks."""
    toc = yaml.safe_load((BOOK / "_toc.yml").read_text())
    return [name for name in documents(toc) if not (HTML / f"{name}.html").is_file()]


def chosen(commit: str, count: int) -> list[str]:
    """Notebooks to execute again: another choice for each commit."""
    early = [name for name in names() if name not in LAST]
    return sorted(early, key=lambda name: hashlib.sha256(f"{commit} {name}".encode()).digest())[
        :count
    ]


def evidence(build: Path, name: str) -> dict:
    """What a page recorded, without times and machine."""
    record = json.loads((build / "evidence" / f"{name}.json").read_text())
    return {key: value for key, value in record.items() if key != "volatile"}


def differences(first: dict, second: dict, place: str = "") -> list[str]:
    """Places where two records differ."""
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return [] if first == second else [f"{place}: {first!r} and {second!r}"]
    found = []
    for key in sorted(first.keys() | second.keys()):
        where = f"{place}/{key}"
        if key not in first or key not in second:
            found.append(f"{where}: in one build only")
        else:
            found += differences(first[key], second[key], where)
    return found


def twice(commit: str, count: int) -> list[str]:
    """Execute some pages again with empty caches and compare what they recorded."""
    again = BUILD / "again"
    shutil.rmtree(again, ignore_errors=True)
    problems = []
    for name in chosen(commit, count):
        problem = execute(name, build=again)
        found = [problem] if problem else differences(evidence(BUILD, name), evidence(again, name))
        print(f"{name}: {'the same numbers' if not found else 'DIFFERS'}", flush=True)
        problems += [f"{name} {text}" for text in found]
    return problems


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("pages")
    again = commands.add_parser("twice")
    again.add_argument("--commit", required=True)
    again.add_argument("--count", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.command == "pages":
        problems = [f"missing page: {name}" for name in missing_pages()]
    else:
        problems = twice(arguments.commit, arguments.count)
    print("\n".join(problems), end="\n" if problems else "")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
