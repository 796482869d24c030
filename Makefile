# `make setup` once, then `make test`; every other target sets itself up too.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp

.PHONY: setup test demo style quality bench clean

setup: $(STAMP)

# Installs again only after a pyproject.toml has changed.
$(STAMP): pyproject.toml sdk/pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[test]" --editable ./sdk
	touch $@

# One thread for each worker: as many threads as cores in every worker would only get in each other's way.
# A file stays on one worker, so that what its fixtures compile is compiled once; files keep the order of tests/conftest.py.
test: setup
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

demo: setup
	$(BIN)/optimum-cli neuron demo $(ARGS)

style: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

quality: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m pip install --quiet --editable ".[benchmark]"
	$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) build dist sdk/build sdk/dist *.egg-info sdk/*.egg-info .mypy_cache .pytest_cache .ruff_cache
