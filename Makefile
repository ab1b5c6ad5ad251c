# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find native -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt)

.PHONY: demo test check format setup clients sanitize sanitized gpu-static clean

demo: $(VENV)/.installed
	$(BIN)/inferno generate --prompt "Once upon a time"

test: $(VENV)/.dev-installed
	$(MAKE) check

# The whole check, without the set-up: format, lint, types, tests. Each of the tests' processes goes
# through files in a row (worksteal), and so loads few models and tokenizers that the other has. What
# Python compiles is kept, whatever the environment says: a hundred and more processes are started.
check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 --dist worksteal

format: $(VENV)/.dev-installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(VENV)/.dev-installed

# Clients of the server that tests use where they are there; the second needs Node.
clients: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[clients]"
	npm install --silent --no-audit --no-fund --prefix build/node openai zod ai @ai-sdk/openai-compatible @ai-sdk/openai

# The CPU kernels' tests under AddressSanitizer and UndefinedBehaviorSanitizer; or, as
# `make sanitize SANITIZER=thread`, engines at once under ThreadSanitizer, first without Python. The
# kernels are built apart; -S keeps the editable installation out of the way. ISAS limits what is
# built, which takes long: ISAS=avx2, say, or ISAS=none for plain C++ alone.
SANITIZER := address,undefined
ISAS := avx2;avx2_vnni;avx512;avx512_bf16;amx
SANITIZED := build/sanitize-$(SANITIZER)
runtime = $(shell $(CXX) -print-file-name=lib$(1).so)
ifeq ($(SANITIZER),thread)
RUNTIMES := $(call runtime,tsan)
# Its map of memory has no place for what the system shuffles widely.
UNSHUFFLED := $(if $(shell command -v setarch),setarch -R)
else
RUNTIMES := $(call runtime,asan) $(call runtime,ubsan)
endif
sanitize: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
		--target $(SANITIZED) --config-settings=build-dir=$(SANITIZED)-objects \
		--config-settings=cmake.define.INFERNO_SANITIZE=$(SANITIZER) \
		--config-settings="cmake.define.INFERNO_ISAS=$(ISAS)" .
ifeq ($(SANITIZER),thread)
	$(UNSHUFFLED) env TSAN_OPTIONS=halt_on_error=1 $(SANITIZED)-objects/engines 1 20
	$(MAKE) sanitized TESTS=tests/engine/test_many_engines.py SANITIZER=thread
else
	$(MAKE) sanitized TESTS=tests/ops/cpu
endif

# Tests that run what `sanitize` has built.
sanitized:
	PYTHONPATH=$(SANITIZED):$(wildcard $(VENV)/lib/python3*/site-packages) \
		LD_PRELOAD="$(RUNTIMES)" ASAN_OPTIONS=detect_leaks=0 \
		$(UNSHUFFLED) $(BIN)/python -S -m pytest $(TESTS)

# All CUDA kernels in all their configurations, compiled for all chips without a GPU, and what is
# wrong with their machine code: by the Triton that is installed, then by the oldest that is
# supported. TRITON=3.6.0, say, takes one of them alone, TRITON=installed the other. What was read
# before, here or elsewhere, is not compiled again. ONLY=rms_norm limits it, by a pattern.
OLDEST_TRITON = $(shell sed -n 's/.*"triton>=\([0-9.]*\).*/\1/p' pyproject.toml).0
ifndef TRITON
gpu-static:
	wrong=0; for each in installed $(OLDEST_TRITON); do \
		$(MAKE) gpu-static TRITON=$$each || wrong=1; done; exit $$wrong
else
TRITON_FOLDER := $(if $(filter-out installed,$(TRITON)),build/triton-$(TRITON))
gpu-static: $(VENV)/.dev-installed $(TRITON_FOLDER)
	PYTHONPATH=$(TRITON_FOLDER) $(BIN)/python -m tests.ops.cuda.compile_kernels --only "$(ONLY)" \
		--processes 2 --record tests/ops/cuda/read_forms
endif

build/triton-%:
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ triton==$*

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# pip compiles the Python files that it installs, but not those of an editable package: a start takes
# up to a second longer wherever the environment forbids Python to keep what it compiles.
$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt $(NATIVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	$(BIN)/python -m compileall -q src/inferno
	touch $@

$(VENV)/.dev-installed: $(BIN)/python pyproject.toml constraints.txt $(NATIVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	$(BIN)/python -m compileall -q src/inferno
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache
