"""Sphinx extension: pages that need no network and work from file://."""

from sphinx.application import Sphinx
from sphinx.config import Config

SEARCH = """
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
  // Summaries are fetched page by page, which browsers refuse for local files.
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
"""


def drop_thebe(app: Sphinx) -> None:
    """Unhook the live-code extension that jupyter-book always loads: it names a remote script."""
    for listeners in app.events.listeners.values():
        for listener in list(listeners):
            if listener.handler.__module__.startswith("sphinx_thebe"):
                app.disconnect(listener.id)
    kept = [entry for entry in app.registry.css_files if "thebe" not in entry[0]]
    app.registry.css_files[:] = kept


def drop_second_mathjax(app: Sphinx, config: Config) -> None:
    """jupyter-book lists every script under _static; MathJax has its own place in the page."""
    config.html_js_files = [entry for entry in config.html_js_files if "mathjax" not in str(entry)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the above."""
    drop_thebe(app)
    app.set_html_assets_policy("always")
    app.connect("config-inited", drop_second_mathjax, priority=1)
    app.add_js_file(None, body=SEARCH, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
