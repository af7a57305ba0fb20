# make reproduce   the quick reproduction and its report, from nothing but Python 3.11+
# make test        the test suite, likewise
# make docs        the documentation site
# make help        the other targets

VENV := .venv
BIN := $(VENV)/bin
OUT ?= reproduction
JOBS ?= auto
TESTS ?= tests README.md docs
SOAK ?= 20

.DEFAULT_GOAL := help
.PHONY: help install reproduce test lint types licences audit check minimum results soak docs package clean

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed ## a virtual environment in .venv with pinned versions

$(VENV)/.installed: pyproject.toml constraints.txt Makefile
	@python=$$(for p in $(PYTHON) python3 python3.13 python3.12 python3.11 python; do \
	    command -v $$p >/dev/null 2>&1 \
	    && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	    && command -v $$p && break; done); \
	if [ -z "$$python" ]; then \
	    echo "adahb needs Python 3.11 or newer with its venv module (Debian: python3-venv);" \
	         "none was found. Name one with: make PYTHON=/path/to/python3" >&2; exit 1; fi; \
	echo "Creating $(VENV) with $$python"; "$$python" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

reproduce: install ## all figures and claims on bundled data, and a report, in $(OUT)
	$(BIN)/adahb reproduce quick --out $(OUT)

test: install ## every test, in parallel
	$(BIN)/python -m pytest -n $(JOBS)

lint: install ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install ## mypy --strict
	$(BIN)/mypy

licences: install ## the licence of everything installed; one that does not go with ours is an error
	$(BIN)/python tools/licences.py

AUDIT := build/audit
audit: install ## known vulnerabilities of what is installed, if the service that knows them answers
	@test -x $(AUDIT)/bin/pip-audit || { $(BIN)/python -m venv $(AUDIT) \
	    && $(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check \
	        --retries 1 --timeout 10 pip-audit==2.10.1; } || true
	$(BIN)/python tools/audit.py $(AUDIT)/bin/pip-audit

check: lint types licences audit test ## all that CI runs, and audit

results: install ## the committed results and the README's numbers, made again
	$(BIN)/adahb reproduce synthetic --out results
	$(BIN)/adahb reproduce convex --out results
	$(BIN)/adahb claims --out results
	$(BIN)/adahb reproduce digits --grid --out results
	$(BIN)/adahb reproduce digits --forms --out results
	$(BIN)/adahb reproduce digits --precision --out results
	$(BIN)/adahb bench projection --json > results/projection.json.part
	mv results/projection.json.part results/projection.json
	$(BIN)/python benchmarks/readme.py

soak: install ## kills, full disks, damaged files, hostile input for SOAK=20 minutes
	$(BIN)/python -m tests.faults.soak --minutes $(SOAK) --out results/soak.json
	$(BIN)/python -m tests.faults.plots results/soak.json
	$(BIN)/python benchmarks/readme.py

docs: install ## the documentation site, in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo build/site/index.html

package: install ## sdist and wheel in dist/, and the tests of the wheel in an environment of its own
	rm -rf build dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m venv build/clean
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt "$$(echo dist/*.whl)[dev]"
	build/clean/bin/python -m pytest -n $(JOBS) $(TESTS)

MINIMUM := build/minimum
EXTRAS := data experiments cluster
minimum: install ## the tests with the oldest versions that pyproject.toml allows, PYTHON=python3.11
	rm -rf $(MINIMUM)
	$(or $(PYTHON),python3.11) -m venv $(MINIMUM)
	$(BIN)/python tools/minimum.py $(EXTRAS) > $(MINIMUM)/constraints.txt
	$(BIN)/python -m build --wheel --no-isolation --outdir $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint $(MINIMUM)/constraints.txt pytest pytest-xdist hypothesis \
	    "$$(echo $(MINIMUM)/*.whl)[$$(echo $(EXTRAS) | tr ' ' ,)]"
	$(MINIMUM)/bin/python -m pip check
	$(MINIMUM)/bin/python -m pytest -n $(JOBS) -W "$(OLD_CHECKS)" $(TESTS)
# scikit-learn 1.6 gives pytest its checks in a way that pytest 9 warns of.
OLD_CHECKS := ignore:Passing a non-Collection:pytest.PytestRemovedIn10Warning

clean: ## remove what the other targets made
	rm -rf $(VENV) $(OUT) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
