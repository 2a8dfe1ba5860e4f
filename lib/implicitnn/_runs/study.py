"""Named sweeps with grids for each tier: run them, see what remains, check what is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from implicitnn._runs import execute as _execute
from implicitnn._runs import project as _project
from implicitnn._runs import provenance as _provenance
from implicitnn._runs import rows as _rows
from implicitnn._runs.execute import Cell, Function
from implicitnn._runs.rows import Row, Settings, Tolerance
from implicitnn._runs.sweep import cells_of, run
from implicitnn._validate import integer, positive
from implicitnn.errors import DataNotFoundError

TIERS = ("quick", "paper")


@dataclass(frozen=True)
class Study:
    r"""A named sweep with its grids.

    Parameters
    ----------
    name : str
        The name of the study's module in ``implicitnn.studies`` and of its results file.
    row : callable
        ``row(settings, seed)`` returns a dictionary of JSON values; a top-level function.
    grids, seeds : mapping
        Settings and seeds for each tier, ``"quick"`` and ``"paper"``.
    claims : tuple of str
        Ids of the claims that its rows serve.
    rtol, atol : float
        How near a recomputed value must come: :math:`|a - b| \le` atol + rtol :math:`|b|`.
    unchecked : tuple of str
        Columns not compared when a cell is recomputed (measured times).
    datasets : callable, optional
        Names of the image sets that a cell reads at their full size, from its settings. A cell
        whose sets are not on the machine is not computed again, so that a check never downloads.
    alone : bool
        Whether cells may not run beside each other, as where they measure time.
    cost : callable, optional
        Relative cost of one cell from its settings, in any unit: stored rows set the scale.

    Examples
    --------
    >>> def row(settings, seed):
    ...     return {"square": settings["n"] ** 2}
    >>> Study("squares", row, {"quick": [{"n": 2}]}, {"quick": [0]}).cells("quick")
    [({'n': 2}, 0)]
    """

    name: str
    row: Function
    grids: Mapping[str, Sequence[Settings]]
    seeds: Mapping[str, Sequence[int]]
    claims: tuple[str, ...] = ()
    rtol: float = 1e-6
    atol: float = 1e-12
    unchecked: tuple[str, ...] = ()
    cost: Callable[[Settings], float] | None = None
    datasets: Callable[[Settings], Sequence[str]] | None = None
    alone: bool = False

    def __post_init__(self) -> None:
        for tiers, what in ((self.grids, "grids"), (self.seeds, "seeds")):
            unknown = sorted(set(tiers) - set(TIERS))
            if unknown:
                raise ValueError(f"{what} of study {self.name!r} hold unknown tiers {unknown}")
        if set(self.grids) != set(self.seeds):
            raise ValueError(f"grids and seeds of study {self.name!r} name different tiers")
        if not isinstance(self.claims, tuple):
            raise TypeError(f"claims of study {self.name!r} must be a tuple")

    def cells(self, tier: str) -> list[tuple[Settings, int]]:
        """Return every (settings, seed) of a tier, in order."""
        if tier not in self.grids:
            raise ValueError(f"study {self.name!r} has no tier {tier!r}, only {list(self.grids)}")
        return [(dict(s), seed) for s in self.grids[tier] for seed in self.seeds[tier]]


def study_path(study: Study, tier: str) -> Path:
    """Return the file of a study's rows: data/results at tier paper, the build folder at quick."""
    if tier not in TIERS:
        raise ValueError(f"tier must be one of {TIERS}, got {tier!r}")
    folder = _project.results() if tier == "paper" else _project.build() / "quick"
    return folder / f"{study.name}.jsonl"


def run_study(
    study: Study,
    tier: str,
    *,
    workers: int | None = None,
    progress: bool = True,
    scheduler: str | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    budget_seconds: float | None = None,
) -> list[Row]:
    """Run a study at a tier; its rows go to :func:`study_path` unless ``path`` is given.

    ``seed`` is added to every seed of the study; tier paper takes only 0, since the verdicts rest
    on declared seeds. At tier paper every claim of the study must stand in the ledger, and its
    rule's hash is stored in the rows. A study that runs alone takes one worker, whatever is asked.
    """
    if tier == "paper" and seed != 0:
        raise ValueError(f"tier paper runs the declared seeds only: seed must be 0, got {seed}")
    study.cells(tier)
    return run(
        study.row,
        study.grids[tier],
        [s + integer(seed, "seed") for s in study.seeds[tier]],
        path=study_path(study, tier) if path is None else path,
        workers=1 if study.alone else workers,
        progress=progress,
        scheduler=scheduler,
        rules=_rules(study) if tier == "paper" else None,
        tolerance=Tolerance(study.rtol, study.atol, study.unchecked),
        budget_seconds=budget_seconds,
    )


def _rules(study: Study) -> dict[str, str]:
    from implicitnn import claims

    if not study.claims:
        return {}
    known = {claim.id: claim.rule_hash for claim in claims.load()}
    missing = [name for name in study.claims if name not in known]
    if missing:
        raise ValueError(
            f"study {study.name!r} serves the claims {missing}, which {_project.ledger()} lacks"
        )
    return {name: known[name] for name in study.claims}


def study_rows(study: Study, tier: str = "paper") -> list[Row]:
    """Return the stored rows of a study's grid, in its order, fresh or stale; none when not run."""
    path = study_path(study, tier)
    stored = _rows.latest(_rows.read(path))
    cells = cells_of(_provenance.qualified_name(study.row), study.grids[tier], study.seeds[tier])
    return [stored[cell.key] for cell in cells if cell.key in stored]


@dataclass(frozen=True)
class Status:
    """What a study still has to compute: cells never run, stale cells, and predicted seconds.

    ``predicted_seconds`` is the processor time of one worker, None when nothing is known.
    """

    name: str
    total: int
    missing: tuple[tuple[Settings, int], ...]
    stale: tuple[tuple[Settings, int], ...]
    predicted_seconds: float | None

    @property
    def complete(self) -> bool:
        """Whether every cell is stored and fresh."""
        return not self.missing and not self.stale


def status(study: Study, tier: str = "paper") -> Status:
    """Return what remains of a study at a tier, with the time predicted from its stored rows."""
    rows = {(r.key): r for r in study_rows(study, tier)}
    cells = cells_of(_provenance.qualified_name(study.row), study.grids[tier], study.seeds[tier])
    code = _provenance.code_hash(study.row)
    rules = _rules(study) if tier == "paper" else {}
    missing = [c for c in cells if c.key not in rows]
    stale = [
        c for c in cells if c.key in rows and (rows[c.key].code, rows[c.key].rules) != (code, rules)
    ]
    return Status(
        study.name,
        len(cells),
        tuple((c.settings, c.seed) for c in missing),
        tuple((c.settings, c.seed) for c in stale),
        _predict(study, list(rows.values()), missing + stale),
    )


def _predict(study: Study, rows: list[Row], cells: list[Cell]) -> float | None:
    """Return the seconds of ``cells``: from rows of equal settings, else scaled by the cost."""
    if not cells:
        return 0.0
    by_settings: dict[str, list[float]] = {}
    for row in rows:
        by_settings.setdefault(_rows.cell_key("", row.settings, 0), []).append(row.seconds)
    if not rows:
        return None
    scale = 0.0
    if study.cost is not None:
        scale = sum(r.seconds for r in rows) / sum(study.cost(r.settings) for r in rows)
    total = 0.0
    for cell in cells:
        known = by_settings.get(_rows.cell_key("", cell.settings, 0))
        if known:
            total += sum(known) / len(known)
        elif study.cost is not None:
            total += scale * study.cost(cell.settings)
        else:
            total += sum(r.seconds for r in rows) / len(rows)
    return total


@dataclass(frozen=True)
class Check:
    """One stored cell computed again: the differences beyond its tolerance, none when it agrees."""

    study: str
    settings: Settings
    seed: int
    recorded_seconds: float
    seconds: float
    stale: bool
    differences: tuple[str, ...]
    skipped: str = ""

    @property
    def ok(self) -> bool:
        """Whether the cell was recomputed (or its data are absent here) and agrees."""
        return not self.differences


def recheck(
    commit: str,
    budget_seconds: float = 180.0,
    studies: Iterable[Study] | None = None,
) -> list[Check]:
    """Recompute stored paper-tier cells, chosen by ``commit``, and compare them.

    The cells are taken in the order of a hash of the commit and their key, as long as their
    recorded cost fits in the budget: the choice is fixed by the commit and cannot be arranged.
    Cells whose data sets are not on this machine are not chosen; each study that has such cells
    is reported once as skipped, with their number.
    """
    if not isinstance(commit, str) or not commit:
        raise ValueError(f"commit must be a non-empty text, got {commit!r}")
    budget = positive(budget_seconds, "budget_seconds")
    if studies is None:
        from implicitnn.studies import STUDIES

        studies = STUDIES.values()
    pool, checks, spent = [], [], 0.0
    for study in studies:
        rows = study_rows(study) if "paper" in study.grids else []
        here = [row for row in rows if _has_data(study, row.settings)]
        pool += [(study, row) for row in here]
        if len(here) < len(rows):
            absent = f"{len(rows) - len(here)} cells need data sets that are not on this machine"
            checks.append(Check(study.name, {}, 0, 0.0, 0.0, False, (), absent))
    pool.sort(key=lambda pair: hashlib.sha256((commit + pair[1].key).encode()).hexdigest())
    for study, row in pool:
        if spent + row.seconds <= budget:
            spent += row.seconds
            checks.append(_check(study, row))
    return checks


def _has_data(study: Study, settings: Settings) -> bool:
    from implicitnn._data import inventory

    names = study.datasets(settings) if study.datasets is not None else ()
    return all(inventory.on_disk(name) for name in names)


def _check(study: Study, row: Row) -> Check:
    stale = row.code != _provenance.code_hash(study.row)
    cell = Cell(row.key, row.settings, row.seed)
    outcome = _execute.compute(study.row, cell, None)
    seconds, skipped = outcome.seconds, ""
    if isinstance(outcome.error, DataNotFoundError):
        skipped, faults = str(outcome.error), []
    elif outcome.error is not None:
        faults = [f"raised {type(outcome.error).__name__}: {outcome.error}"]
    else:
        faults = _rows.differences(row, outcome.values)
    return Check(
        study.name, row.settings, row.seed, row.seconds, seconds, stale, tuple(faults), skipped
    )
