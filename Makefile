# Everything happens in .venv, which the first command makes.
PYTHON ?= python3
BIN := .venv/bin

# Some shells forbid to keep compiled modules; then every process would compile torch again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test docs-test core-test test-all paper-test fuzz faults lint bench docs browser clean

demo: .venv/ready
	$(BIN)/deconflow demo --output demo_output

# In the order of the files: those with few but long tests would come last, to one process alone.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# All but the tests marked as slow, which show again at full size what others show, and those of
# pages: four minutes.
test: .venv/ready
	$(PYTEST) -m "not slow and not docs"

# Pages and the gallery run as readers would run them, whichever process is free; records and the
# release are consistent.
docs-test: .venv/ready
	$(PYTEST) --dist worksteal -m "docs and not slow"

# Where torch is not installed, everything but flows passes its tests all the same.
core-test: .venv-core/ready
	$(PYTEST:.venv/%=.venv-core/%) -m "not slow and not docs" tests

test-all: .venv/ready
	$(PYTEST)

paper-test: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest paper/tests

# Ten thousand odd calls of everything public, with their record in results/fuzz.json.
fuzz: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --calls 10000

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready
	$(BIN)/python -m benchmarks.step
	$(BIN)/python -m benchmarks.classical
	$(BIN)/python benchmarks/xd_speed.py --threads
	$(BIN)/python benchmarks/xd_memory.py
	$(BIN)/python -m benchmarks.program_memory

# A thousand damaged model files and a hundred killed runs: about twenty minutes.
faults: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.faults

docs: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[docs]"
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

# Debian's chromium, for the tests that look at reports; without it they are skipped.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && apt-get install -qq --no-install-recommends -y chromium >/dev/null; } \
		|| echo "no chromium here: tests in a browser are skipped"

clean:
	rm -rf .venv .venv-core docs/_build docs/examples demo_output

# torch comes first and by its exact version: where there is a small CPU build, that is taken.
# Modules are compiled when they are first imported: to compile all takes a minute, for few of them.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt torch
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable ".[all,test,lint]"
	touch .venv/ready

.venv-core/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-core
	.venv-core/bin/pip install --quiet --no-compile --constraint constraints.txt --editable ".[test]"
	touch .venv-core/ready
