# Needs nothing but make and Python 3.11 or newer with venv; everything else is put into .venv.
PYTHON ?= python3
SEED ?= 1
RUNS ?= 200

# The tests start hundreds of processes: each would compile the code anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint sim sim-mutants soak

demo: .venv/ready
	.venv/bin/angarium demo

test: lint
	.venv/bin/pytest -m 'not soak' -n 6 --dist loadfile --cov --cov-report=term:skip-covered

lint: .venv/ready
	.venv/bin/ruff check
	.venv/bin/ruff format --check --quiet
	.venv/bin/mypy

sim: .venv/ready
	.venv/bin/python -m tests.sim --seed $(SEED) --runs $(RUNS)

sim-mutants: .venv/ready
	.venv/bin/python -m tests.sim --mutants

soak: .venv/ready
	.venv/bin/pytest -m soak -o faulthandler_timeout=900
	.venv/bin/python -m tests.sim --seed $(SEED) --runs 1000

# Made anew whenever pyproject.toml changes.
.venv/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Angarium needs Python 3.11 or newer, $(PYTHON) is not: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv: apt install python3-venv, or make PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]'
	@touch $@
