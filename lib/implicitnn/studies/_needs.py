"""Which data sets a cell reads at their full size, for the check of stored cells."""

from __future__ import annotations

from collections.abc import Mapping

IMAGES = ("mnist", "fashion_mnist")


def full_images(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the image set named by ``data`` or ``dataset`` when ``source`` is ``"full"``.

    Examples
    --------
    >>> full_images({"data": "mnist twin", "source": "full"})
    ('mnist',)
    >>> full_images({"data": "mixture", "source": "full"})
    ()
    >>> full_images({"dataset": "mnist", "source": "embedded"})
    ()
    """
    words = str(settings.get("dataset", settings.get("data", ""))).split()
    named = settings.get("source") == "full" and words and words[0] in IMAGES
    return (words[0],) if named else ()
