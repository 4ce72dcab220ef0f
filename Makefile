# Needs nothing but make and Python 3.11 or newer with venv; everything else is put into .venv.
PYTHON ?= python3
SEED ?= 1
RUNS ?= 200
JOBS ?= 4
WORKERS ?= 8

# The tests start hundreds of processes: each would compile the code anew.
unexport PYTHONDONTWRITEBYTECODE

UV = 0.13.9
# Renews what the image and a release are made with: packages of PyPI, with hashes, for every platform.
COMPILE = .venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

.PHONY: demo wheel lock test tests coverage test-pythons lint style types sim sim-mutants soak chaos

demo: .venv/ready
	.venv/bin/angarium demo

wheel: .venv/ready
	.venv/bin/python -m hatchling build -t wheel
	cd kit && ../.venv/bin/python -m hatchling build -t wheel -d ../dist

lock: .venv/ready
	.venv/bin/pip install --quiet --disable-pip-version-check 'uv==$(UV)'
	$(COMPILE) --extra api --extra ledger --extra postgres --extra otel pyproject.toml -o deploy/docker/image.lock
	printf '%s\n' hatchling setuptools | $(COMPILE) - -o deploy/docker/build.lock
	printf '%s\n' hatchling build cyclonedx-bom | $(COMPILE) - -o .ci/release.lock

# The tests begin beside mypy: both have to pass.
test: style
	@$(MAKE) --no-print-directory -j 2 types tests

tests: .venv/ready
	.venv/bin/pytest -m 'not soak' --workers $(WORKERS)

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
	.venv-$*/bin/pytest -q -m 'not soak' --workers $(WORKERS) \
	  tests/unit tests/contract/transport tests/edge/test_usage.py tests/e2e/commands/test_demo.py tests/e2e/commands/test_wheel.py

lint: style types

style: .venv/ready
	.venv/bin/ruff check
	.venv/bin/ruff format --check --quiet

types: .venv/ready
	.venv/bin/mypy

sim: .venv/ready
	.venv/bin/python -m tests.sim --seed $(SEED) --runs $(RUNS)
	.venv/bin/python -m tests.sim --seed $(SEED) --runs $(RUNS) --resending

sim-mutants: .venv/ready
	.venv/bin/python -m tests.sim --mutants

soak: .venv/ready
	.venv/bin/pytest -m 'soak and not alone' -n $(JOBS) --dist worksteal -o faulthandler_timeout=900
	.venv/bin/pytest -m 'soak and alone and not chaos' -o faulthandler_timeout=900
	.venv/bin/python -m tests.sim --seed $(SEED) --runs 1000
	.venv/bin/python -m tests.sim --seed $(SEED) --runs 300 --resending

# Every failure of servers and nodes, once, on a fleet of three servers, with a table of what was seen; the shorter
# ones are soak tests, too.
chaos: .venv/ready
	.venv/bin/pytest -q tests/e2e/chaos -o faulthandler_timeout=900

# Made anew whenever pyproject.toml changes.
.venv/ready: pyproject.toml kit/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Angarium needs Python 3.11 or newer, $(PYTHON) is not: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv: apt install python3-venv, or make PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]' --editable ./kit
	@touch $@

.PRECIOUS: .venv-%/ready
.venv-%/ready: pyproject.toml
	$$(.ci/pythons $*) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]' --editable ./kit
	@touch $@
