# Python 3.11 or newer; the first found is taken. Another one: make PYTHON=python3.12 test
NEW_ENOUGH = import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(or $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done),python3)

TRANSFER = results/transfer
OPTUNA_TESTS = PYTHONPATH=$(CURDIR)/.optuna4 .venv/bin/pytest -q -n auto --dist worksteal -m 'not slow' src/fedbo/optuna tests/optuna_front
NEWEST_TESTS = $(addprefix tests/,hub exchange privacy optuna_front trust message federation)

.PHONY: help demo lint test test-all test-flower test-newest chromium proxies wheel docs docs-serve bench house transfer clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

# The demo needs less than the tests; a complete environment is used if there is one.
demo: $(or $(wildcard .venv/stamp),.venv/demo-stamp)  ## run a hub and ten sites on this machine
	.venv/bin/fedbo demo

test test-all test-flower test-newest: export OMP_NUM_THREADS = 1
test test-all test-flower test-newest: export OPENBLAS_NUM_THREADS = 1

# All extras are installed together, so pip check shows whether one environment can hold them.
lint: .venv/stamp
	.venv/bin/pip check
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/vulture

test: lint chromium proxies .optuna4/stamp  ## what CI runs: lint, types, layers, dead code, and every test that is not slow (8 minutes)
	.venv/bin/pytest -q -n auto --dist worksteal -m 'not slow and not fleet'
	$(OPTUNA_TESTS)

test-all: lint chromium proxies .optuna4/stamp  ## the same with the long ones: kills, the whole page, experiments, a fleet
	.venv/bin/pytest -q -n auto --dist worksteal -m 'not fleet'
	.venv/bin/pytest -q -m fleet
	$(OPTUNA_TESTS)

test-flower: .venv/stamp  ## deploy a real Flower fleet on this machine, with TLS and keys (2 minutes)
	.venv/bin/pytest -q -m fleet

# Today's versions of everything but flwr, which holds others back. `pip install` brings them to users: what breaks shows here first.
test-newest: chromium  ## test hub, exchanges, privacy and Optuna with today's versions of all packages (8 minutes)
	$(call venv,.venv-newest)
	.venv-newest/bin/pip install -qq --upgrade --upgrade-strategy eager -e '.[optuna,hub,privacy,cluster,dev]'
	.venv-newest/bin/pytest -q -n auto --dist worksteal -m 'not slow and not fleet' $(NEWEST_TESTS)

# The hub's page is tested in a browser, and lsof ends Flower's server. Where apt cannot be used, their tests are skipped and say why.
chromium:
	@{ command -v chromium || command -v chromium-browser; } >/dev/null && command -v lsof >/dev/null || { \
		[ "$$(id -u)" = 0 ] && as= || as="sudo -n"; \
		command -v apt-get >/dev/null && $$as true 2>/dev/null && \
		$$as apt-get -qq update && \
		$$as env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 \
			install --no-install-recommends chromium fonts-liberation lsof >/dev/null || \
		echo "Chromium and lsof cannot be installed here: the tests that need them will be skipped" >&2; }

# The proxies of deploy/, unpacked and not installed: that would start two servers here.
proxies:
	@export PATH="$$PATH:/usr/sbin:$(CURDIR)/.proxies/usr/bin:$(CURDIR)/.proxies/usr/sbin"; \
		command -v caddy >/dev/null && command -v nginx >/dev/null || { \
		mkdir -p .proxies && cd .proxies && apt-get -qq download caddy nginx 2>/dev/null && \
		printf '%s\n' *.deb | xargs -I{} dpkg-deb -x {} . || \
		echo "Caddy and nginx cannot be fetched here: the tests that need them will be skipped" >&2; }

wheel: .venv/stamp  ## build, check and try the wheel, as a release does
	rm -rf dist
	.venv/bin/python -m build
	.venv/bin/twine check --strict dist/*
	.venv/bin/check-wheel-contents dist
	.venv/bin/pytest -q tests/test_wheel.py

docs: .venv/stamp  ## build the documentation in site/; a warning or a broken link is an error
	.venv/bin/python docs/gallery.py
	.venv/bin/python docs/evidence/pictures.py
	.venv/bin/python docs/pictures.py
	.venv/bin/python docs/reference.py
	.venv/bin/python docs/build.py

docs-serve: docs  ## show the documentation on http://localhost:8000
	.venv/bin/zensical serve

bench: .venv-bench/stamp  ## measure the CPU time of a query: beside BoTorch and Optuna, and against N
	.venv-bench/bin/python benchmarks/speed.py

house: .venv/stamp  ## how large the code is: lines, levels of imports, modules that a trial crosses
	.venv/bin/python benchmarks/house.py

# docs/lab/transfer.md says which data FEDBO_DATA must hold and what the figures mean. Finished runs are stored.
transfer: .venv/stamp .venv-bench/stamp  ## measure what collaboration gains: five benchmarks and their picture (hours)
	mkdir -p $(TRANSFER)
	.venv-bench/bin/python benchmarks/table.py $${FEDBO_DATA:?is not set}/tst_svm_50x288.npz --targets odd --json $(TRANSFER)/svm.json
	.venv-bench/bin/python benchmarks/table.py $$FEDBO_DATA/lcbench_35x2000.npz --targets odd --json $(TRANSFER)/lcbench.json
	.venv-bench/bin/python benchmarks/landmine.py --box both --json $(TRANSFER)/landmine.json
	.venv-bench/bin/python benchmarks/har.py --json $(TRANSFER)/har.json
	.venv-bench/bin/python benchmarks/hostile.py --targets odd --json $(TRANSFER)/hostile.json
	.venv/bin/python benchmarks/picture.py $(TRANSFER)/regret.png $(TRANSFER)/lcbench.json $(TRANSFER)/svm.json $(TRANSFER)/landmine.json $(TRANSFER)/har.json

clean:  ## remove environments, caches and builds
	rm -rf .venv .venv-bench .venv-newest .optuna4 .proxies .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .cache build dist site docs/examples
	rm -rf docs/evidence/drawn docs/how/pictures docs/reference/cli.md docs/reference/http.md
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

.venv/stamp: pyproject.toml constraints.txt
	$(call venv,.venv)
	.venv/bin/pip install -qq -c constraints.txt -e '.[optuna,hub,flower,privacy,cluster,experiments,dev,docs]'
	@touch $@

# The oldest Optuna that fedbo supports, in front of the tested one. Both need the same packages.
.optuna4/stamp: .venv/stamp
	.venv/bin/pip install -qq --no-deps --upgrade --target .optuna4 optuna==4.5.0
	@touch $@

.venv/demo-stamp: pyproject.toml constraints.txt
	$(call venv,.venv)
	.venv/bin/pip install -qq -c constraints.txt -e '.[experiments,hub]'
	@touch $@

# torch first: see constraints-bench.txt
.venv-bench/stamp: pyproject.toml constraints.txt constraints-bench.txt
	$(call venv,.venv-bench)
	.venv-bench/bin/pip install -qq -c constraints.txt -c constraints-bench.txt torch
	.venv-bench/bin/pip install -qq -c constraints.txt -c constraints-bench.txt -e '.[bench]'
	@touch $@

define venv
@$(PYTHON) -c '$(NEW_ENOUGH)' || { echo "fedbo needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) -V 2>&1);" \
	"name another: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
$(PYTHON) -m venv $(1)
endef
