# Each target makes its own virtual environment first. PYTHON picks another interpreter, VENV another place.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo demo-digits test test-slow test-all docs links notebooks notebooks-part lint package clean

demo: $(VENV)/examples
	OMP_NUM_THREADS=1 $(BIN)/python notebooks/wine.py

demo-digits: $(VENV)/examples
	OMP_NUM_THREADS=1 $(BIN)/python notebooks/digits.py

test: $(VENV)/test
	$(BIN)/python -m pytest tests pymc_gibbsnn

# One of 60 parts of the slow tests, and of 5 of the notebooks: its number, counted round, is the hash of the last commit;
# where there is none, 0.
PART ?= $$((0x$$(git rev-parse --verify --short=8 HEAD 2>/dev/null || echo 0)))
test-slow: $(VENV)/test
	$(BIN)/python -m pytest tests pymc_gibbsnn -m slow --part $(PART)/60

test-all: $(VENV)/test
	$(BIN)/python -m pytest tests pymc_gibbsnn -m "slow or not slow"

docs: $(VENV)/docs
	$(BIN)/python -m sphinx -W --keep-going docs docs/_build/html

links: $(VENV)/docs
	$(BIN)/python -m sphinx -b linkcheck docs docs/_build/links

notebooks: $(VENV)/examples $(VENV)/jax $(VENV)/store
	$(BIN)/python notebooks/execute.py

notebooks-part: $(VENV)/examples $(VENV)/jax $(VENV)/store
	$(BIN)/python notebooks/execute.py --part $(PART)/5

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The source distribution and the wheel; the latter, installed alone, must sample without this folder.
package: $(VENV)/test
	rm -rf dist build
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build --quiet
	$(BIN)/python -m pip install --quiet --no-deps --target build/installed dist/*.whl
	cd build && PYTHONPATH=installed ../$(BIN)/python ../.ci/smoke.py

# A stamp per extra: installed again when the dependencies change.
$(VENV)/%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	touch $@

clean:
	rm -rf $(VENV) docs/_build figures build dist
