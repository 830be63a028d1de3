# Two commands for a newcomer: `make demo` and `make test`. Both create .venv on first use and
# install nothing again until pyproject.toml or constraints.txt change.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-all lint types unit docs results pictures release-check audit compat-files fuzz clean
.DELETE_ON_ERROR:

demo: $(VENV)/demo.stamp
	$(BIN)/python -m gpn.demo

test: lint types unit

test-all: lint types
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "" \
	  --cov=gpn --cov-report=term:skip-covered --cov-fail-under=90

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/test.stamp
	$(BIN)/mypy

unit: $(VENV)/test.stamp
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

# The documentation site in site/; strict, and nothing is fetched.
docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

# The numbers and tables of README and docs from the result files, and every tracked picture.
results: $(VENV)/test.stamp
	PYTHONPATH=. $(BIN)/python docs/tools/results.py

pictures: $(VENV)/test.stamp
	$(BIN)/python docs/tools/pictures.py

# Wheel and sdist, each installed into an empty environment and tried; some minutes. The bill of
# materials of such an environment lies beside them.
release-check: $(VENV)/test.stamp
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	@set -e; for file in $(CURDIR)/dist/*.whl $(CURDIR)/dist/*.tar.gz; do \
	  folder=$$(mktemp -d); echo "trying $$(basename $$file)"; \
	  $(PYTHON) -m venv $$folder/venv; \
	  $$folder/venv/bin/pip --disable-pip-version-check --quiet install \
	    --constraint constraints.txt "$$file[cli]"; \
	  (cd $$folder && venv/bin/python $(CURDIR)/tests/smoke.py); \
	  $$folder/venv/bin/python docs/tools/bill_of_materials.py dist/gpn.cdx.json; \
	  rm -rf $$folder; \
	done

# Known weaknesses of the packages in constraints.txt; it needs a network. A package that cannot be
# looked up is an error, too.
audit: | $(BIN)/python
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/pip --disable-pip-version-check --quiet install 'pip-audit>=2.7'
	$(VENV)-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

# The model files of this version, and what they must predict from then on; once at each release.
compat-files: $(VENV)/test.stamp
	$(BIN)/python -m tests.compat.write

# Every reader on inputs that coverage guides; atheris has an environment of its own.
MINUTES ?= 30
fuzz: $(VENV)/test.stamp
	$(PYTHON) -m venv $(VENV)-fuzz
	$(VENV)-fuzz/bin/pip --disable-pip-version-check --quiet install --editable '.[test]' \
	  --constraint constraints.txt 'atheris>=3'
	OMP_NUM_THREADS=1 ARROW_DEFAULT_MEMORY_POOL=system \
	  $(VENV)-fuzz/bin/python -m tests.fuzz.guided $(MINUTES)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "gpn needs Python 3.11 or newer, got $$($(PYTHON) --version); try make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/%.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing gpn[$*] into $(VENV) (once; about a minute)"
	@$(PIP) install --constraint constraints.txt --editable '.[$*]'
	@touch $@

clean:
	rm -rf $(VENV) demo site dist
