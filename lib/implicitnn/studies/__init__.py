"""The studies: one module for each named sweep, found by file and imported when asked for.

Each module ``<name>.py`` defines a function ``row(settings, seed)`` and
``STUDY = Study("<name>", row, ...)``; modules whose name starts with an underscore hold code that
studies share. A study is imported by itself, so that adding one leaves the others' rows valid.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from implicitnn.sweeps import Study

__all__ = ["STUDIES"]


class _Registry(Mapping[str, Study]):
    """Read-only mapping from a study's name to the study.

    Examples
    --------
    >>> all(STUDIES[name].name == name for name in STUDIES)
    True
    """

    def __getitem__(self, name: str) -> Study:
        if name not in set(self):
            raise KeyError(f"no study {name!r}; there are {', '.join(self)}")
        study = importlib.import_module(f"{__name__}.{name}").STUDY
        if not isinstance(study, Study) or study.name != name:
            raise TypeError(f"{__name__}.{name} must define STUDY, a Study named {name!r}")
        return study

    def __iter__(self) -> Iterator[str]:
        names = sorted(module.name for module in pkgutil.iter_modules(__path__))
        return (name for name in names if not name.startswith("_"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


STUDIES: Mapping[str, Study] = _Registry()
