# Every command works on a fresh checkout with Python 3.11 or later and make: the first one sets up a
# virtual environment, the next ones find it there. None needs to be active.
#
# Another Python, another environment:
#     make test PYTHON=python3.12 VENV=.venv-next EXTRAS=test,demo,pymc

PYTHON  = python3
VENV    = .venv
EXTRAS  = test,demo
# Test processes side by side. A module stays in one of them, so that what it compiles is compiled once.
WORKERS = 2
# The environment of the lowest versions that pyproject.toml allows.
LOWEST  = .venv-lowest
# More for pytest, e.g. ARGS="-k scan" or ARGS=tests/ir
ARGS    =

PY     = $(VENV)/bin/python
PIP    = $(PY) -m pip -qq --disable-pip-version-check
# Tests that look at values only, not at what JAX is given.
VALUES = tests/test_programs.py tests/test_properties.py tests/frontend/test_loop_properties.py
# Bytecode is written even where the environment forbids it: else each process of the tests, and many start
# new ones, compiles all sources again (2.6 seconds for an import of loopax, 1.8 with bytecode).
PYTEST = PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n $(WORKERS) --dist loadscope
# One stamp for each set of extras: asking for another set installs it, a change of pyproject.toml
# installs it again.
READY  = $(VENV)/.installed-$(EXTRAS)

.DEFAULT_GOAL = help
.PHONY: help setup demo test test-all test-lowest docs access gallery docs-check lint format bench bench-gpu build clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## the virtual environment, with loopax in it

demo: $(READY) ## a PyTensor model turned into a JAX function, with what one can then do
	$(PY) -m loopax demo

test: $(READY) ## the quick tests
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(READY) ## all tests, and those of values once more with loops as native code in JAX
	$(PYTEST) $(ARGS)
	LOOPAX_LOOPS=native $(PYTEST) $(VALUES) $(ARGS)

# Wheels only: what has to be compiled for an old version says nothing about loopax.
test-lowest: $(LOWEST)/lowest.txt ## the smoke tests on the lowest version of each dependency (Python 3.11 or 3.12)
	PIP_CONSTRAINT=$(CURDIR)/$< PIP_ONLY_BINARY=:all: $(MAKE) --no-print-directory VENV=$(LOWEST) EXTRAS=smoke setup
	$(LOWEST)/bin/python -m pytest -q tests/test_smoke.py $(ARGS)

# Pictures and times are those that `make gallery` has kept. On Python 3.11 what needs PyMC is left out.
docs: $(VENV)/.installed-docs ## run every example and code block, and build the documentation into out/site
	$(PY) -m examples.gallery --check
	$(PY) -m pytest -q -n $(WORKERS) --dist load tests/documents/test_documents.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
	@echo "Open out/site/index.html"

access: $(VENV)/.installed-access ## axe on each page of out/site, in light and dark, and its width on a phone
	$(PY) -m tests.documents.access out/site

gallery: $(VENV)/.installed-docs ## the pictures and times that come with the code, made anew on this machine
	$(PY) -m examples.gallery --to docs/gallery $(ARGS)

docs-check: $(READY) ## run every code block of README.md and docs/
	$(PYTEST) tests/documents/test_documents.py $(ARGS)

lint: $(VENV)/.installed-lint ## style, format, types, and the prose of documents
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m tests.documents.prose

format: $(VENV)/.installed-lint ## put the code into the form that lint asks for
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(VENV)/.installed-bench ## loopax beside hand-written JAX, Numba and PyTensor's own modes
	$(PY) -m benchmarks $(ARGS)

bench-gpu: $(VENV)/.installed-bench ## loops on a GPU beside hand-written JAX: kernels a step, times; says so where there is none
	$(PY) -m benchmarks.gpu $(ARGS)

build: $(VENV)/.installed-build ## a wheel and an sdist in dist/
	$(PY) -m build

clean: ## remove caches, builds and pictures; the environments stay
	rm -rf build dist out *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -path './.venv*' -prune -o -name __pycache__ -type d -print | xargs rm -rf

# pip is the last thing that venv puts there, so a set-up that was interrupted is begun again.
$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "loopax needs Python 3.11 or later; $(PYTHON) is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(LOWEST)/lowest.txt: pyproject.toml tests/lowest_versions.py
	@mkdir -p $(LOWEST)
	$(PYTHON) tests/lowest_versions.py >$@

$(VENV)/.installed-%: pyproject.toml | $(VENV)/bin/pip
	$(PIP) install --editable '.[$*]'
	@touch $@
