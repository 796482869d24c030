# `make setup` once, then `make test`; every other target sets itself up too.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp

.PHONY: setup test test-full test-fast demo style quality bench clean

setup: $(STAMP)

# Installs again only after a pyproject.toml has changed.
$(STAMP): pyproject.toml sdk/pyproject.toml sdk_vllm/pyproject.toml sdk_xla/pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[test]" --editable ./sdk --editable ./sdk_vllm --editable ./sdk_xla
	touch $@

# One thread for each worker: as many threads as cores in every worker would only get in each other's way.
# A file stays on one worker, so that what its fixtures compile is compiled once; files keep the order of tests/conftest.py.
# Images for CI often forbid bytecode files; each of the hundreds of processes would compile this package again.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: setup
	$(PYTEST) $(ARGS)

# Exhaustive tests too, of which `make test` runs a sample that the date chooses (tests/sampling.py): before a release.
test-full: setup
	$(PYTEST) --full $(ARGS)

# One quick file of each layer, in less than a minute: for the inner loop, not instead of `make test`.
FAST = tests/base/test_core.py tests/hardware/test_resolve.py tests/compiler/test_capture.py tests/weights/test_bind.py \
  tests/models/test_registry.py tests/runtime/test_executor.py tests/exporters/test_inspection.py \
  tests/modeling/test_causal_lm.py tests/tracing/test_ops.py tests/device/test_device.py \
  tests/trainer/test_optimizer.py tests/distributed/test_mesh.py tests/simulator/test_device_time.py \
  tests/profiling/test_recorder.py tests/checking/test_buckets.py tests/buckets/test_suggest.py \
  tests/checkpoints/test_folder.py tests/pipelines/test_factory.py tests/cli/test_inspect.py tests/tools/test_usage.py

test-fast: setup
	$(PYTEST) $(FAST) $(ARGS)

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
	rm -rf $(VENV) build dist sdk*/build sdk*/dist *.egg-info sdk*/*.egg-info .mypy_cache .pytest_cache .ruff_cache
