# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find native -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt)

.PHONY: demo test check format setup clients sanitize clean

demo: $(VENV)/.installed
	$(BIN)/inferno generate --prompt "Once upon a time"

test: $(VENV)/.dev-installed
	$(MAKE) check

# The whole check, without the set-up: format, lint, types, tests.
check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

format: $(VENV)/.dev-installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(VENV)/.dev-installed

# Clients of the server that tests use where they are there; the second needs Node.
clients: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[clients]"
	npm install --silent --no-audit --no-fund --prefix build/node openai

# The CPU kernels' tests under AddressSanitizer and UndefinedBehaviorSanitizer. The kernels are built
# apart; -S keeps the editable installation out of the way.
SANITIZERS := $(shell $(CXX) -print-file-name=libasan.so) $(shell $(CXX) -print-file-name=libubsan.so)
sanitize: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
		--target build/sanitize --config-settings=build-dir=build/sanitize-objects \
		--config-settings=cmake.define.INFERNO_SANITIZE=ON .
	PYTHONPATH=build/sanitize:$(wildcard $(VENV)/lib/python3*/site-packages) \
		LD_PRELOAD="$(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0 \
		$(BIN)/python -S -m pytest tests/ops/cpu

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt $(NATIVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev-installed: $(BIN)/python pyproject.toml constraints.txt $(NATIVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache
