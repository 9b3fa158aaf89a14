# Every target sets itself up in .venv: needed are make, Python 3.11 to 3.13 (with its venv module), a C compiler and the
# headers of libjpeg-turbo and libdeflate, which root gets by apt-get if they are missing. Nothing else is installed
# outside this folder. PYTHON=/path/to/python chooses another interpreter, after `make clean`.
.DEFAULT_GOAL := help
.PHONY: help approve fuzz test tests check coverage types test-native test-aarch64 test-wheel test-slow test-core test-beam test-browser test-servers test-recipes test-dali \
	test-torch test-oldest test-newest test-nightly tune lint format wheel release docs bench clean
.DELETE_ON_ERROR:
# Images of containers often set it. Without kept bytecode each of the tests' processes compiles Keras and TensorFlow anew,
# as uv installs them without: 10 s of processor time, not 4.
unexport PYTHONDONTWRITEBYTECODE

USABLE := import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13; do \
	"$$python" -c "$(USABLE)" >/dev/null 2>&1 && { command -v "$$python"; break; }; done)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
DEMO := examples/photos/demo

# By uv, which takes an eighth of pip's processor time; by pip where uv has not the package index that pip is configured
# to use.
INSTALL = $(PIP) install --quiet uv && $(BIN)/uv pip install --quiet --python $(BIN)/python -e '$(1)' || \
	$(PIP) install --quiet -e '$(1)'

# opencv-python needs libGL and libX11, which slim servers lack. Its headless wheel has the same module without them, but
# the two overwrite each other's files: hence the uninstall first, and --force-reinstall for when a run before swapped too.
define HEADLESS_IF_NEEDED
$(BIN)/python -c "import cv2" 2>/dev/null || { \
	echo "import cv2 fails here: putting opencv-python-headless in the place of opencv-python"; \
	$(PIP) uninstall --quiet --yes opencv-python && \
	$(PIP) install --quiet --force-reinstall --no-deps opencv-python-headless && \
	$(BIN)/python -c "import cv2"; }
endef

# What native/CMakeLists.txt needs, which names the packages if they are missing and only root can install them.
NATIVE := hatch_build.py native/CMakeLists.txt $(wildcard native/*.[ch])
HEADERS := $(addprefix /usr/include/,jpeglib.h libdeflate.h stdio.h)
define HEADERS_IF_POSSIBLE
{ ls $(HEADERS) >/dev/null 2>&1 && command -v cc >/dev/null; } || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
	binutils gcc libc6-dev libjpeg-dev libdeflate-dev >/dev/null; } || true
endef

define NEEDS_PYTHON
test -n "$(PYTHON)" || { echo "error: no Python 3.11 to 3.13 with its venv module was found." >&2; \
	echo "hint: install one (Debian, Ubuntu: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python" >&2; \
	exit 1; }
endef

help:
	@echo "make test    lint, types, layers and every test that is not marked slow (4 minutes on 2 cores)"
	@echo "make approve keeps the texts that tests compare as they are now, in folders approved"
	@echo "make check   what CI runs beside it: the targets below, but for coverage, torch, newest and nightly"
	@echo "make types   mypy on everything; make test reads the package only"
	@echo "make test-native"
	@echo "             20,000 damaged images and records, and images of all shapes, through the native library, under sanitizers"
	@echo "make fuzz    the same inputs, and what libFuzzer makes of them until it is stopped; needs clang"
	@echo "make test-aarch64"
	@echo "             the native library compiled for aarch64, and run by qemu: to the bit what it makes here"
	@echo "make test-wheel"
	@echo "             a wheel in an environment without a compiler, and builds where something is missing"
	@echo "make test-slow"
	@echo "             whole tunes, examples and diagnoses, as users run them, and trials of every loader"
	@echo "make test-core"
	@echo "             the core in a copy without extensions: its tests, and a tune of the demo set"
	@echo "make test-beam"
	@echo "             a conversion in parts by Apache Beam"
	@echo "make test-browser"
	@echo "             reports, and the site of make docs, in a real Chromium"
	@echo "make test-servers"
	@echo "             several processes that train together, on loopback; a database; a Ray cluster of two nodes"
	@echo "make test-recipes"
	@echo "             recipes for schedulers, read by cron, systemd, Airflow, schemas of Kubernetes and shellcheck"
	@echo "make test-dali"
	@echo "             the loader Dali on the CPU; installs NVIDIA DALI, 1 GB"
	@echo "make test-torch"
	@echo "             the device strategy on Keras's torch backend; installs torch, 5 GB"
	@echo "make test-oldest, test-newest, test-nightly"
	@echo "             what touches frameworks, with the oldest and newest versions allowed, and with keras-nightly"
	@echo "make coverage"
	@echo "             the tests of make test and test-slow, with the lines that they run; fails below 85 %"
	@echo "make tune    tunes examples/photos on a demo set of real photographs (about 5 minutes, install included)"
	@echo "make lint    ruff, mypy on the package and import-linter only"
	@echo "make format  lets ruff rewrite the files"
	@echo "make wheel   dist/*.whl, for Linux with glibc 2.28 or newer, built from the source distribution beside it"
	@echo "make release REPOSITORY=https://host/owner/name"
	@echo "             the same, with README's links leading there, and checked for a package index"
	@echo "make docs    the site, in build/site: guides, commands, the names of ap, figures"
	@echo "make bench   autopipe beside Keras, tf.data, Grain and DALI"
	@echo "make clean   removes .venv, caches, demo data and tuned-*"

# Folders with a target of their own.
APART := $(addprefix --ignore tests/,browser extensions/dali/installed extensions/ray/nodes recipes servers torch wheel)
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile $(APART)

# Both at once: mypy, without a cache of its own, takes one core for half a minute.
test: $(VENV)/dev.stamp
	@$(MAKE) --no-print-directory --jobs=2 lint tests

tests: $(VENV)/dev.stamp
	$(PYTEST) -m "not slow"

# The newest versions need no run of their own: in a clean clone .venv was resolved a moment ago, and holds them.
check: types test-native test-aarch64 test-wheel test-slow test-core test-beam test-browser test-servers test-recipes test-dali test-oldest

# The same 20,000 files and 14,580 shapes each time.
SANITIZED := -fsanitize=address,undefined -fno-sanitize-recover=all
test-native: $(VENV)/dev.stamp
	$(BIN)/python native/fuzz/seeds.py build/fuzz/seeds
	cc -std=c11 -g -O1 -Wall -Wextra -Werror -ffp-contract=off $(SANITIZED) -DMUTATE -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION \
		-o build/fuzz/fuzz native/*.c native/fuzz/fuzz.c -ljpeg -ldeflate -lm
	build/fuzz/fuzz 20000 build/fuzz/seeds/*

# Until it is stopped, where clang is: it keeps inputs that reach new code in build/fuzz/found.
fuzz: $(VENV)/dev.stamp
	$(BIN)/python native/fuzz/seeds.py build/fuzz/seeds
	mkdir -p build/fuzz/found
	clang -std=c11 -g -O1 -ffp-contract=off -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
		-DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION -o build/fuzz/libfuzzer native/*.c native/fuzz/fuzz.c -ljpeg -ldeflate -lm
	build/fuzz/libfuzzer $(FUZZ) build/fuzz/found build/fuzz/seeds

test-aarch64: $(VENV)/dev.stamp
	$(BIN)/python native/fuzz/seeds.py build/fuzz/seeds
	sh native/fuzz/aarch64.sh

test-wheel: wheel
	$(BIN)/python -m pytest tests/wheel

# Texts that tests compare, kept as they are now: read what `git diff` shows of them.
approve: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -q --approve $$(grep -rlw approved --include='test_*.py' tests)

test-slow: $(VENV)/dev.stamp
	$(PYTEST) -m slow

# A copy without extensions: their entry points name folders that are not there.
CORE := $(VENV)/core
test-core: $(VENV)/dev.stamp $(DEMO)
	rm -rf $(CORE) && mkdir $(CORE)
	tar c --exclude='./.venv*' --exclude=./.git --exclude=./autopipe/extensions --exclude=./tests/extensions . | tar x -C $(CORE)
	cd $(CORE) && export PYTHONPATH=$(CURDIR)/$(CORE) && python=$(CURDIR)/$(BIN)/python && \
		$$python -m pytest -n 2 --dist loadfile -m "not slow" --hypothesis-profile=whole tests/unit tests/contract tests/property && \
		$$python -m autopipe tune examples/photos/train.py:workload --budget 1m --out tuned
	rm -rf $(CORE)

test-beam: $(VENV)/beam.stamp
	PYTHONPATH=$(VENV)/beam $(BIN)/python -m pytest tests/integration/test_convert.py -k beam

# Taking note of each line costs more than half as much again (Python 3.11: 313 s, not 201 s, of processor time for 2,972
# tests).
coverage: $(VENV)/dev.stamp
	$(PYTEST) --cov --cov-report=term:skip-covered

# Nothing is skipped here: what is missing is installed, or said.
test-browser: $(VENV)/browser.stamp
	CI=true $(BIN)/python -m pytest tests/browser

test-dali: $(VENV)/dev.stamp
	$(PIP) install --quiet -e '.[dali]'
	@$(HEADLESS_IF_NEEDED)
	$(BIN)/python -m pytest tests/extensions/dali/installed

# The wheel of torch brings CUDA with it, 5 GB in all, so CI leaves this out.
test-torch: $(VENV)/dev.stamp
	$(PIP) install --quiet -e '.[torch]'
	@$(HEADLESS_IF_NEEDED)
	$(BIN)/python -m pytest tests/contract/test_device_strategies.py tests/torch -k torch
	KERAS_BACKEND=torch $(BIN)/python -m pytest tests/unit/artifact/test_plain_fit.py

RAY_TESTS := $(BIN)/python -m pytest --junitxml $(VENV)/ray.xml tests/extensions/ray/nodes
test-servers: $(VENV)/dev.stamp
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { test "$$(id -u)" = 0 && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes postgresql >/dev/null; } || \
		{ echo "error: PostgreSQL is missing: sudo apt-get install postgresql" >&2; exit 1; }
	$(PIP) install --quiet -e '.[ray]'
	@$(HEADLESS_IF_NEEDED)
	$(BIN)/python -m pytest tests/servers
	@# Ray ends its driver, here pytest, without a word when a node's raylet is gone: what that logged, and once more.
	rm -f $(VENV)/ray.xml; $(RAY_TESTS) || { test ! -e $(VENV)/ray.xml && \
		{ tail -n 20 /tmp/ray/session_latest/logs/*raylet*.* /tmp/ray/session_latest/logs/gcs_server*; $(RAY_TESTS); }; }

test-recipes: $(VENV)/recipes.stamp
	$(BIN)/python -m pytest tests/recipes

# What touches a framework, each time in an environment of its own that is resolved anew. By uv, because pip cannot take
# the lowest versions; with OpenCV without windows, because that imports everywhere.
FRAMEWORK_TESTS := tests/contract/test_frameworks.py tests/contract/test_device_strategies.py \
	tests/contract/test_loaders.py tests/unit/pipeline/devices tests/unit/pipeline/loaders tests/unit/pipeline/test_wrap.py \
	tests/unit/artifact/test_plain_fit.py tests/unit/measure/test_fingerprint.py tests/unit/workload/ops/test_decode.py tests/unit/cli/test_main.py
OPENCV := opencv-python-headless$(shell sed -n 's/^    "opencv-python\([^"]*\)".*/\1/p' pyproject.toml)

test-oldest: RESOLUTION := --resolution lowest-direct
test-newest test-nightly: WARNED := -W ignore::autopipe.errors.FrameworkWarning
test-nightly: LEFT_OUT := keras
test-nightly: INSTEAD := keras-nightly

test-oldest test-newest test-nightly: test-%:
	@$(NEEDS_PYTHON)
	@$(HEADERS_IF_POSSIBLE)
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip --disable-pip-version-check install --quiet uv
	for package in opencv-python $(LEFT_OUT); do echo "$$package; sys_platform == 'never'"; done > .venv-$*/left-out.txt
	.venv-$*/bin/uv pip install --quiet --python .venv-$* --override .venv-$*/left-out.txt $(RESOLUTION) \
		-e '.[jax]' '$(OPENCV)' $(INSTEAD)
	.venv-$*/bin/uv pip install --quiet --python .venv-$* hypothesis pytest pytest-timeout pytest-xdist
	.venv-$*/bin/python -m pytest -n 2 --dist loadfile -p no:cacheprovider $(WARNED) $(FRAMEWORK_TESTS)

tune: $(VENV)/tune.stamp $(DEMO)
	$(BIN)/autopipe tune examples/photos/train.py:workload --budget 3m --out tuned-photos

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy autopipe
	$(BIN)/lint-imports

types: $(VENV)/dev.stamp
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# auditwheel refuses a library that needs newer symbols, and puts into the wheel what is not inside.
PLATFORM = manylinux_2_28_$(shell uname -m)
export REPOSITORY
wheel: $(VENV)/wheel.stamp
	rm -rf build/wheel dist
	export PATH="$(CURDIR)/$(BIN):$$PATH" && hatchling build --target sdist && \
		$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel dist/*.tar.gz && \
		auditwheel repair --plat $(PLATFORM) --only-plat --wheel-dir dist build/wheel/*.whl && auditwheel show dist/*.whl

release: wheel
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	@test -n "$(REPOSITORY)" || echo "note: without REPOSITORY=https://host/owner/name, links of the long description are plain text" >&2

# NO_MKDOCS_2_WARNING: the theme prints advice about versions to come.
docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/bench.stamp
	$(BIN)/python benchmarks/loaders.py

clean:
	rm -rf $(VENV) .venv-* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.* \
		build dist autopipe/_native.so examples/*/demo tuned-*

$(DEMO): $(VENV)/tune.stamp examples/photos/make_demo.py
	$(BIN)/python examples/photos/make_demo.py
	@touch $@

$(VENV)/bench.stamp: $(VENV)/dev.stamp
	$(PIP) install --quiet -e '.[bench]'
	@$(HEADLESS_IF_NEEDED)
	@touch $@

$(VENV)/docs.stamp: $(VENV)/dev.stamp
	$(PIP) install --quiet -e '.[docs]'
	@$(HEADLESS_IF_NEEDED)
	@touch $@

$(VENV)/browser.stamp: $(VENV)/docs.stamp
	$(PIP) install --quiet -e '.[browser]'
	@$(HEADLESS_IF_NEEDED)
	@command -v chromium >/dev/null || ls ~/.cache/ms-playwright/chromium* >/dev/null 2>&1 || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends chromium fonts-liberation >/dev/null; } || { \
		echo "error: no Chromium was found, and only root can install Debian's." >&2; \
		echo "hint: $(BIN)/playwright install chromium, or as root: apt-get install chromium" >&2; exit 1; }
	@touch $@

$(VENV)/wheel.stamp: $(VENV)/dev.stamp
	$(PIP) install --quiet -e '.[wheel]'
	@$(HEADLESS_IF_NEEDED)
	@touch $@

# Airflow wants versions of its own, too.
$(VENV)/recipes.stamp: $(VENV)/dev.stamp
	$(PIP) install --quiet -e '.[recipes]'
	@$(HEADLESS_IF_NEEDED)
	$(BIN)/python -m venv $(VENV)/airflow
	$(VENV)/airflow/bin/python -m pip --disable-pip-version-check install --quiet \
		'apache-airflow-core>=3,<4' apache-airflow-providers-standard
	@{ command -v systemd-analyze && command -v crontab; } >/dev/null || { test "$$(id -u)" = 0 && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
		systemd cron >/dev/null; } || { echo "error: systemd-analyze or crontab is missing: sudo apt-get install systemd cron" >&2; exit 1; }
	@touch $@

# Beam wants older versions of packages that all else is tested with (protobuf above all): it gets a folder of its own.
$(VENV)/beam.stamp: $(VENV)/dev.stamp
	$(PIP) install --quiet --target $(VENV)/beam --upgrade apache-beam
	@touch $@

TUNES := demo,tested
# What a tune needs, and no more, which a fresh machine has far sooner than the developers' extra.
$(VENV)/tune.stamp: pyproject.toml $(NATIVE) $(VENV)/pyvenv.cfg
	@$(HEADERS_IF_POSSIBLE)
	$(call INSTALL,.[$(TUNES)])
	@$(HEADLESS_IF_NEEDED)
	@touch $@

$(VENV)/dev.stamp: pyproject.toml $(NATIVE) $(VENV)/pyvenv.cfg
	@$(HEADERS_IF_POSSIBLE)
	$(call INSTALL,.[dev])
	@$(HEADLESS_IF_NEEDED)
	@touch $@

$(VENV)/pyvenv.cfg:
	@$(NEEDS_PYTHON)
	$(PYTHON) -m venv $(VENV)
