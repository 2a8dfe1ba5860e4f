"""What a notebook page shows and leaves behind: figures, numbers, verdicts, provenance.

Every page makes one :class:`Page` from its parameters and ends with ``page.provenance()``.
Figures carry their name, caption and alternative text as metadata of the output; the build of the
book turns these into numbered figures. Numbers shown in prose come from ``page.glue``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import pandas as pd
from IPython.core.getipython import get_ipython
from IPython.display import display
from matplotlib.figure import Figure

from implicitnn import claims, figures, sweeps
from implicitnn._book import tables as _page_tables
from implicitnn._runs import project as _project
from implicitnn._runs import provenance as _provenance
from implicitnn._runs import rows as _rows
from implicitnn._validate import integer, one_of
from implicitnn.claims import Verdict
from implicitnn.datasets import Dataset
from implicitnn.figures import Band
from implicitnn.studies import STUDIES

SVG_LIMIT = 300_000
_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class StudyRows(NamedTuple):
    """Rows of a study: those of the page's own run, and the stored ones of tier paper."""

    now: pd.DataFrame
    paper: pd.DataFrame


class Page:
    """One page of the book while it is executed.

    Parameters
    ----------
    name : str
        File stem of the notebook.
    tier : str
        ``"quick"`` or ``"paper"``.
    seed : int
        Added to the seeds of every study the page runs.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Page("example", "quick", 0, build=folder)
    ...     page.record("gap", 0.25)
    ...     (page.evidence["values"], os.listdir(os.path.join(folder, "evidence")))
    ({'gap': 0.25}, ['example.json'])
    """

    def __init__(
        self, name: str, tier: str = "quick", seed: int = 0, *, build: str | Path | None = None
    ) -> None:
        self.name = _slug(name, "name")
        self.tier = one_of(tier, "tier", sweeps.TIERS)
        self.seed = integer(seed, "seed")
        self._build = _project.build() if build is None else Path(build)
        self._start = time.monotonic()
        # Seeds of the last study at each tier: the default of a figure's caption.
        self._seeds: dict[str, list[int]] = {}
        self._used: set[int] = {self.seed}
        self._seconds: dict[str, float] = {}
        # Studies whose stored grid is not whole: cells stored, and cells of the grid.
        self._incomplete: dict[str, tuple[int, int]] = {}
        self._data: dict[str, str] = {}
        self._figure_cells: set[int] = set()
        # A claim is judged once: badge, verdicts and ledger of one page show the same verdict.
        self._judged: dict[str, Verdict] = {}
        self.evidence: dict[str, Any] = {
            "page": self.name,
            "tier": self.tier,
            "seed": self.seed,
            "values": {},
            "figures": {},
            "claims": {},
            "data": self._data,
        }

    def study(self, name: str) -> StudyRows:
        """Run a study at the page's tier and return its rows, with the stored ones of tier paper.

        Rows that this build already holds are not computed again. The stored rows are those of
        :meth:`stored`.
        """
        study = STUDIES[name]
        path = None if self.tier == "paper" else self._build / "quick" / f"{name}.jsonl"
        rows = sweeps.run_study(
            study, self.tier, workers=1, progress=False, seed=self.seed, path=path
        )
        stored = self.stored(name)
        self._seeds = {
            "paper": [int(s) for s in sorted(stored["seed"].unique())] if len(stored) else [],
            self.tier: sorted({row.seed for row in rows}),
        }
        self._used |= set(self._seeds[self.tier])
        self._seconds[name] = sum(row.seconds for row in rows)
        return StudyRows(sweeps.frame(rows), stored)

    def stored(self, name: str) -> pd.DataFrame:
        """Return the stored rows of tier paper of a study's grid, fresh or stale.

        The table is empty while a cell of the grid is missing: part of a grid would show some
        settings with fewer seeds than the caption says. The provenance of the page then counts
        the cells that are there.
        """
        study = STUDIES[name]
        if "paper" not in study.grids:
            return sweeps.frame([])
        rows, total = sweeps.study_rows(study), len(study.cells("paper"))
        if len(rows) == total:
            return sweeps.frame(rows)
        self._incomplete[name] = (len(rows), total)
        return sweeps.frame([])

    def figure(
        self,
        figure: Figure,
        name: str,
        caption: str,
        *,
        band: Band | None = None,
        seeds: Sequence[int] | None = None,
        tier: str | None = None,
        alt: str | None = None,
    ) -> None:
        """Show a figure with a caption that says tier, seeds and band; one figure per cell.

        Parameters
        ----------
        figure : Figure
            Shown as SVG, or as PNG when the SVG is larger than 300 kB; closed afterwards.
        name : str
            Label for references, unique in the book.
        caption : str
            What is drawn, one or two sentences; may hold TeX between dollars.
        band : Band, optional
            What the bands mean, from :func:`implicitnn.figures.band`.
        seeds : sequence of int, optional
            Seeds behind the figure; default those of the last study at the figure's tier, else the
            page's seed.
        tier : str, optional
            Tier of the rows drawn where it is not the page's: stored ``"paper"`` rows.
        alt : str, optional
            Alternative text; by default made from the plotted numbers.
        """
        label = _slug(name, "name")
        if label in self.evidence["figures"]:
            raise ValueError(f"the page already has a figure named {label!r}")
        self._one_per_cell()
        shown = one_of(tier or self.tier, "tier", sweeps.TIERS)
        text = _one_line(alt or figures.describe(figure)).replace('"', "'")
        used = self._seeds.get(shown, [self.seed]) if seeds is None else list(seeds)
        full = _full_caption(caption, shown, used, band, self.name)
        drawing = figures.svg(figure)
        data: dict[str, str] = {"image/svg+xml": drawing}
        content = drawing.encode()
        if len(content) > SVG_LIMIT:
            content = figures.png(figure)
            data = {"image/png": base64.b64encode(content).decode("ascii")}
        plt.close(figure)
        meta = {"kind": "figure", "name": label, "caption": full, "alt": text,
                "tier": shown, "source": f"notebooks/{self.name}.md"}  # fmt: skip
        self.evidence["figures"][label] = {
            "caption": full,
            "alt": text,
            "mime": next(iter(data)),
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
        }
        self._save()
        _show({**data, "text/plain": text}, meta)

    def record(self, key: str, value: object) -> None:
        """Keep a value as evidence of this page; a key is used once."""
        name = _slug(key, "key")
        if name in self.evidence["values"]:
            raise ValueError(f"the page already recorded {name!r}")
        self.evidence["values"][name] = _rows.plain(value, name)
        self._save()

    def glue(self, key: str, value: object) -> None:
        """Record a number or text and make it available to the prose as a glued value."""
        self.record(key, value)
        from myst_nb import glue

        glue(key, self.evidence["values"][key], display=False)

    def data(self, dataset: Dataset) -> Dataset:
        """Note a data set that the page reads, with its hash, and return it."""
        origin = dataset.provenance
        name = f"{origin.name} {origin.split}, {len(dataset.X)} images ({origin.place})"
        self._data[name] = origin.data_sha256
        self._save()
        return dataset

    def verdicts(self, *ids: str) -> None:
        """Show the claims ``ids``, each with its verdict and the table behind it."""
        found = self._judge(ids)
        _show(_page_tables.verdicts(list(found.values())), {"kind": "verdicts", "claims": ids})

    def badge(self, *ids: str) -> None:
        """Show one badge per claim: its id and its verdict."""
        found = self._judge(ids)
        html = " ".join(
            _page_tables.badge_html(v.status, f"{name}: {v.status}") for name, v in found.items()
        )
        text = ", ".join(f"{name}: {v.status}" for name, v in found.items())
        bundle = {"text/html": f"<p>{html}</p>", "text/markdown": text, "text/plain": text}
        _show(bundle, {"kind": "badge", "claims": ids})

    def ledger(self) -> dict[str, Verdict]:
        """Show the verdict on every claim of the ledger and return them."""
        found = self._judge([claim.id for claim in claims.load()])
        _show(_page_tables.ledger(list(found.values())).bundle(), {"kind": "ledger"})
        return found

    def provenance(self) -> None:
        """Show where the page's numbers come from, and how to make them again."""
        versions = ", ".join(f"{k} {v}" for k, v in _provenance.versions().items())
        place = _provenance.machine()
        studies = ", ".join(f"{k} ({v:.1f} s)" for k, v in self._seconds.items())
        counts = self._incomplete.items()
        waiting = ", ".join(f"{k} ({a} of {b} cells stored)" for k, (a, b) in counts)
        items = [
            ("Tier", self.tier),
            ("Seeds", _spans(sorted(self._used))),
            ("Studies run for this page", studies or "none"),
            *([("Tier paper, not shown until complete", waiting)] if waiting else []),
            ("Time of this page", f"{time.monotonic() - self._start:.1f} s"),
            ("Machine", f"{place['cpu']}, {place['cores']} cores, {place['system']}"),
            ("Versions", versions),
            ("Data", ", ".join(f"{k} (sha256 {v[:12]})" for k, v in self._data.items()) or "none"),
            ("Rebuild", f"python -m implicitnn notebook {self.name} --tier {self.tier} "
                        f"--seed {self.seed}"),
        ]  # fmt: skip
        self._save()
        table = _page_tables.pairs("provenance", "Provenance of this page", items)
        _show(table.bundle(), {"kind": "provenance"})

    def _judge(self, ids: Sequence[str]) -> dict[str, Verdict]:
        known = {claim.id: claim for claim in claims.load()}
        unknown = [name for name in ids if name not in known]
        if unknown or not ids:
            raise ValueError(f"the ledger has no claims {unknown}; it has {', '.join(known)}")
        for name in ids:
            if name not in self._judged:
                self._judged[name] = claims.judge(known[name])
        found = {name: self._judged[name] for name in ids}
        for name, verdict in found.items():
            self.evidence["claims"][name] = {
                "status": verdict.status,
                "expected": verdict.claim.expected,
                "lines": [
                    {"part": line.part, "group": line.group, "outcome": line.passed,
                     "measured": _page_tables.measured(line)}
                    for line in verdict.lines
                ],
            }  # fmt: skip
        self._save()
        return found

    def _one_per_cell(self) -> None:
        shell = get_ipython()
        if shell is None:
            return
        count = int(shell.execution_count)
        if count in self._figure_cells:
            raise RuntimeError("a cell shows one figure: put the second page.figure in its own")
        self._figure_cells.add(count)

    def _save(self) -> None:
        """Write the evidence whole or not at all; what differs between runs is kept apart."""
        folder = self._build / "evidence"
        folder.mkdir(parents=True, exist_ok=True)
        volatile = {
            "seconds": round(time.monotonic() - self._start, 3),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": _provenance.machine(),
            "versions": _provenance.versions(),
        }
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{self.name}.", suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({**self.evidence, "volatile": volatile}, file, indent=1, allow_nan=False)
        os.replace(name, folder / f"{self.name}.json")


def _show(bundle: dict[str, str], meta: dict[str, Any]) -> None:
    if get_ipython() is not None:
        show: Any = display
        show(bundle, raw=True, metadata={"implicitnn": meta})


def _slug(text: str, name: str) -> str:
    if not isinstance(text, str) or not _SLUG.fullmatch(text):
        raise ValueError(f"{name} must be letters, digits, '-', '_' or '.', got {text!r}")
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _full_caption(
    caption: str, tier: str, seeds: Sequence[int], band: Band | None, page: str
) -> str:
    parts = [_one_line(caption).rstrip(".") + "."]
    if band is not None:
        parts.append(band.meaning)
    noun = "seed" if len(set(seeds)) == 1 else "seeds"
    parts += [f"Tier {tier}, {noun} {_spans(seeds)}.", f"Source: notebooks/{page}.md."]
    return " ".join(parts)


def _spans(seeds: Sequence[int]) -> str:
    """Return seeds as runs, such as '0-4, 7'."""
    runs: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs) or "none"
