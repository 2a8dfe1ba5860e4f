# One command for each thing a reader does; `make help` lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP_ARGS ?=
PORT ?= 8000
# Minutes that one call of `make paper` may take; it resumes where it stopped.
MINUTES ?= 20

START := $(shell date +%s)
VENV := .venv
BIN := $(VENV)/bin
PEERS := benchmarks/.peers
DOIT := $(BIN)/doit --file dodo.py

export CHROMIUM

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.SILENT:
.NOTPARALLEL:
.PHONY: help setup book test browser test-lib lint types serve paper paper-status bench bench-peers test-peers clean distclean

help:
	echo "make book          execute every notebook (tier quick), build the HTML book, print where it is"
	echo "make test          linter, types, unit tests, doctests and page tests in a browser"
	echo "make test-lib      the same without the page tests: no browser and no book needed"
	echo "make serve         show the built book on http://127.0.0.1:$(PORT)"
	echo "make paper         compute the stored results of tier paper, resumable ($(MINUTES) minutes a call)"
	echo "make paper-status  what tier paper still lacks, and how long it will take"
	echo "make bench         speed of kernels, designs and equilibrium layers against floors and peers"
	echo "make bench-peers   the same, with neural-tangents in an environment of its own"
	echo "make test-peers    explicit kernels against neural-tangents, in the same environment"
	echo "make setup         only the virtual environment in $(VENV)"
	echo "make clean         remove what was built; make distclean removes $(VENV) too"
	echo
	echo "Variables: PYTHON=$(PYTHON)  PIP_ARGS='extra arguments of pip install'  PORT  MINUTES"

setup: $(VENV)/.installed

$(VENV)/.locked: requirements.lock
	$(PYTHON) book/install.py check
	test -x $(BIN)/python || { echo "Making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv $(VENV); }
	$(BIN)/python book/install.py lock $(PIP_ARGS)
	touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	$(BIN)/python book/install.py project $(PIP_ARGS)
	touch $@

book: setup
	$(DOIT) run --continue -n 2 --parallel-type thread html
	$(BIN)/python book/build_book.py report --since $(START)

test: browser setup
	$(DOIT) run --continue lint types unit
	$(DOIT) run --continue -n 2 --parallel-type thread html
	$(DOIT) run pages

# Before anything long: the page tests at the end need it.
browser:
	$(PYTHON) book/browser.py

test-lib: setup
	$(DOIT) run --continue lint types unit

lint types: setup
	$(DOIT) run $@

serve: setup
	$(BIN)/python book/build_book.py report
	$(BIN)/python book/serve.py --port $(PORT)

paper: setup
	$(BIN)/python -m implicitnn paper --minutes $(MINUTES)

paper-status: setup
	$(BIN)/python -m implicitnn paper --status

bench: setup $(PEERS)/torchdeq
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.designs
	PYTHONPATH=$(PEERS) $(BIN)/python -m benchmarks.networks
	$(BIN)/python -m benchmarks.infinite_depth

# Pure Python beside the PyTorch of $(VENV). Where it cannot be fetched, the benchmark says so.
$(PEERS)/torchdeq: | setup
	-$(BIN)/python -m pip install --quiet --no-deps --target $(PEERS) torchdeq==0.1.0 $(PIP_ARGS)

bench-peers: setup
	$(BIN)/python -m benchmarks --peers

test-peers: setup
	$(BIN)/python -m pytest -q tests/peers

clean:
	rm -rf _build build .cache ci-*.log .pytest_cache .mypy_cache .ruff_cache .hypothesis lib/*.egg-info lib/.mypy_cache
	find lib tests book benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
	echo "Removed what was built; data and $(VENV) are kept."

distclean: clean
	rm -rf $(VENV) benchmarks/.venv-peers $(PEERS)
	echo "Removed $(VENV)."
