"""Parser of the command line: one function for each subcommand, loaded when it is called.

Exit codes: 0 done, 1 failed (the message says why), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from implicitnn._data.registry import NAMES
from implicitnn.errors import DataFileError, DownloadError

Options = argparse.Namespace
TIERS = ("quick", "paper")


class UsageError(Exception):
    """A wrong argument that only the command itself can tell."""


class CommandError(Exception):
    """A command that could not do its work, for a reason the message gives."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code."""
    options = parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except UsageError as error:
        return _say(error, 2)
    except (CommandError, DataFileError, DownloadError, FileNotFoundError) as error:
        return _say(error, 1)
    except ModuleNotFoundError as error:
        if (error.name or "implicitnn").split(".")[0] == "implicitnn":
            raise
        return _say(
            f"this command needs {error.name}, which is not installed. In the project's folder: "
            "make setup, or pip install '.[torch,book]'", 1,
        )  # fmt: skip
    except KeyboardInterrupt:
        return _say("interrupted", 130)


def _say(message: object, code: int) -> int:
    print(f"implicitnn: {message}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands."""
    top = argparse.ArgumentParser(
        prog="python -m implicitnn",
        description="Deep equilibrium models: an executable book and its library.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
    )
    top.add_argument("--version", action="version", version=_version())
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _add_doctor(commands)
    _add_data(commands)
    _add_notebook(commands)
    _add_paper(commands)
    _add_recheck(commands)
    return top


def _version() -> str:
    try:
        return importlib.metadata.version("implicitnn")
    except importlib.metadata.PackageNotFoundError:
        return "run from its folder"


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add(commands: Commands, name: str, summary: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
    )


def _add_doctor(commands: Commands) -> None:
    summary = "show versions, BLAS, cores, compiled kernels, data sets and GPU"
    _add(commands, "doctor", summary).set_defaults(command=doctor)


def _add_data(commands: Commands) -> None:
    data = _add(commands, "data", "list (when nothing else is said), fetch or verify the data sets")
    data.set_defaults(command=data_list)
    actions = data.add_subparsers(metavar="ACTION")
    _add(actions, "list", "list the data sets and where they are").set_defaults(command=data_list)
    fetch = _add(actions, "fetch", "download the official files of one data set into the cache")
    fetch.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    fetch.set_defaults(command=data_fetch)
    verify = _add(actions, "verify", "check the sha256 and the content of every file found")
    verify.add_argument(
        "name", nargs="?", choices=NAMES, metavar="NAME", help=f"{', '.join(NAMES)}; default all"
    )
    verify.set_defaults(command=data_verify)


def _add_notebook(commands: Commands) -> None:
    one = _add(commands, "notebook", "execute one notebook of the book")
    one.add_argument("name", metavar="NAME", help="file name in notebooks/, without .md")
    one.add_argument("--tier", choices=TIERS, default="quick", help="default: %(default)s")
    one.add_argument("--seed", type=_count, default=0, metavar="N", help="default: %(default)s")
    one.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="executed notebook; default _build/notebooks/NAME-TIER-seedN.ipynb",
    )
    one.set_defaults(command=notebook)


def _add_paper(commands: Commands) -> None:
    paper_ = _add(commands, "paper", "compute the stored results of tier paper, resumable")
    paper_.add_argument("names", nargs="*", metavar="NAME", help="studies; default all")
    paper_.add_argument(
        "--status", action="store_true", help="only print what remains and the predicted hours"
    )
    paper_.add_argument(
        "--minutes", type=_positive, metavar="M", help="start no new computation after M minutes"
    )
    paper_.add_argument(
        "--workers", type=_positive_count, metavar="N", help="processes; default all cores"
    )
    paper_.set_defaults(command=paper)


def _add_recheck(commands: Commands) -> None:
    check = _add(commands, "recheck", "compute a sample of the stored results again and compare")
    check.add_argument(
        "--commit", required=True, metavar="HASH", help="any text; it chooses the sample"
    )
    check.add_argument(
        "--seconds", type=_positive, default=180.0, metavar="S",
        help="recorded cost of the sample; default %(default)g",
    )  # fmt: skip
    check.set_defaults(command=recheck)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be an integer >= 0, got {text!r}")
    return int(text)


def _positive_count(text: str) -> int:
    if _count(text) == 0:
        raise argparse.ArgumentTypeError("must be at least 1, got 0")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text!r}")
    return number


def doctor(_options: Options) -> int:
    """Print the report; 1 when it holds a fault."""
    from implicitnn import doctor as report

    sections = report.report()
    print(report.text(sections))
    return int(any(section.faults for section in sections))


def data_list(_options: Options) -> int:
    """Print the data sets and where they were found."""
    from implicitnn._cli import data as _cli_data

    return _cli_data.listing()


def data_fetch(options: Options) -> int:
    """Download one data set into the cache."""
    from implicitnn._cli import data as _cli_data

    return _cli_data.fetch(options.name)


def data_verify(options: Options) -> int:
    """Check all files found of one data set, or of all."""
    from implicitnn._cli import data as _cli_data

    return _cli_data.verify([options.name] if options.name else list(NAMES))


def notebook(options: Options) -> int:
    """Execute one notebook."""
    from implicitnn._cli import notebook as _cli_notebook

    return _cli_notebook.run(options.name, options.tier, options.seed, options.output)


def paper(options: Options) -> int:
    """Run studies at tier paper, or print what remains."""
    from implicitnn._cli import paper as _cli_paper

    if options.status:
        return _cli_paper.status(options.names)
    return _cli_paper.run(options.names, options.minutes, options.workers)


def recheck(options: Options) -> int:
    """Compute stored cells again; 1 when one differs or none could be computed."""
    from implicitnn._cli import recheck as _cli_recheck

    return _cli_recheck.run(options.commit, options.seconds)
