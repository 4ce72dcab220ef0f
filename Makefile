# Needs nothing but make and Python 3.11 or newer with venv; everything else is put into .venv.
PYTHON ?= python3
SEED ?= 1
RUNS ?= 200
JOBS ?= 4

# The tests start hundreds of processes: each would compile the code anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo wheel test coverage test-pythons lint sim sim-mutants soak

demo: .venv/ready
	.venv/bin/angarium demo

wheel: .venv/ready
	.venv/bin/python -m hatchling build -t wheel

test: .venv/ready
	@$(MAKE) --no-print-directory -j 2 lint .venv/collected
	.venv/bin/pytest -m 'not soak' -n 6 --dist worksteal

# A report, not a test, and tracing makes these tests take twice as long. Of the tests that look closely: simulated
# worlds pass through everything, and tests beside processes are not seen.
coverage: .venv/ready
	.venv/bin/pytest -q -m 'not soak' -n $(JOBS) --dist worksteal --cov --cov-report=term:skip-covered \
	  tests/unit tests/contract tests/edge

# Every other Python from 3.11 on that is found here; `make test-python-3.12` is one of them. What may differ from
# one to the next is tested: our own logic, the transports and TLS, and the demo from the wheel.
test-pythons: .venv/ready
	@default=$$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for version in $$(.ci/pythons | cut -d ' ' -f 1 | grep -vxF "$$default"); do \
	  echo "== Python $$version"; $(MAKE) --no-print-directory test-python-$$version || exit 1; \
	done

test-python-%: .venv-%/ready
	.venv-$*/bin/pytest -q -m 'not soak' -n $(JOBS) --dist worksteal \
	  tests/unit tests/contract/transport tests/edge/test_usage.py tests/e2e/test_demo.py tests/e2e/test_wheel.py

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

# pytest rewrites and compiles each test module when it first meets it, and all its workers would meet all of them
# at once. So one process does it beforehand, beside the linters.
.venv/collected: .venv/ready $(shell find tests -name '*.py')
	@.venv/bin/pytest --collect-only --quiet --quiet >$@ || { cat $@; rm $@; exit 1; }

.PRECIOUS: .venv-%/ready
.venv-%/ready: pyproject.toml
	$$(.ci/pythons $*) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]'
	@touch $@
