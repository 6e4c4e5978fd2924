# Two commands on a fresh machine: `make run` opens the monitor on the demo, `make test` proves it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: run test lint soak bench lock wheel clean

run: $(VENV)/.installed
	$(BIN)/polltop --demo

test: $(VENV)/.installed
	$(BIN)/python -m pytest -m "not soak" -n 3

soak: $(VENV)/.installed
	$(BIN)/python -m pytest -m soak --timeout 3600

bench: $(VENV)/.installed
	$(PIP) --require-hashes -r tests/benchmarks/requirements.lock
	$(BIN)/python -m tests.benchmarks.pacing
	$(BIN)/python -m tests.benchmarks.throttled
	$(BIN)/python -m tests.benchmarks.hidden_limit

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wheel: $(VENV)/.installed
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

lock:
	uv pip compile --quiet --universal --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
		--custom-compile-command "make lock" pyproject.toml --group dev -o requirements.lock
	uv pip compile --quiet --universal --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
		--custom-compile-command "make lock" --constraint requirements.lock pyproject.toml --group bench -o tests/benchmarks/requirements.lock

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "polltop needs Python 3.11 or newer; $(PYTHON) is older: make $(MAKECMDGOALS) PYTHON=python3.13" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python requirements.lock pyproject.toml
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@
