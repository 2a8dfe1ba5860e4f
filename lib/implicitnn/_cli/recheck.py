"""The `recheck` subcommand: compute a sample of the stored results again and compare."""

from __future__ import annotations

from implicitnn import sweeps
from implicitnn._cli.parser import CommandError, UsageError
from implicitnn._cli.text import table
from implicitnn.sweeps import Check


def run(commit: str, seconds: float) -> int:
    """Print one line for each cell; 1 when a cell differs.

    Raises CommandError when no cell could be computed at all: an empty check proves nothing.
    """
    if not commit:
        raise UsageError("--commit must not be empty")
    checks = sweeps.recheck(commit, seconds)
    done = [check for check in checks if not check.skipped]
    if not done:
        reasons = [f"{check.study}: {check.skipped}" for check in checks]
        text = f"no stored cell costs less than {seconds:g} s, or none is stored"
        raise CommandError("; ".join([text, *reasons]))
    header = ("study", "seed", "settings", "recorded s", "now s", "outcome")
    print(table([header, *(_line(check) for check in checks)]))
    failed = [check for check in done if not check.ok]
    for check in failed:
        print(f"\n{check.study}, seed {check.seed}, {check.settings}:")
        print("\n".join(f"  {text}" for text in check.differences))
    print(
        f"\n{len(done) - len(failed)} of {len(done)} cells agree, {len(checks) - len(done)} skipped"
    )
    return int(bool(failed))


def _line(check: Check) -> tuple[str, ...]:
    settings = " ".join(f"{key}={value}" for key, value in check.settings.items())
    if check.skipped:
        return (check.study, "", check.skipped, "", "", "skipped")
    outcome = "agrees" if check.ok else "DIFFERS"
    if check.stale:
        outcome += ", stored row is stale"
    times = (f"{check.recorded_seconds:.1f}", f"{check.seconds:.1f}")
    return (check.study, str(check.seed), settings, *times, outcome)
