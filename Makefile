# `make demo` and `make test` set up everything they need in .venv; nothing but Python 3.11+ has to be there before.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
OLDEST := $(VENV)/oldest
FOREIGN := $(VENV)/foreign
FOREIGN_PYTHON ?= python3.11
READERS := TENSORFLOW BERT4KERAS KPE KERAS_XLNET
# mkdocs.yml makes every warning an error; the variable silences an advertisement of the theme.
SITE := NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
INSTALL := $(PY) -m pip --disable-pip-version-check --quiet install --constraint constraints.txt --editable

# An editable install and `activate` remember where they were made, so in a folder that was moved or copied they are
# made again.
ifneq "$(shell cat $(VENV)/.place 2>/dev/null)" "$(CURDIR)"
MOVED := moved
endif

.PHONY: help demo test test-all test-oldest test-foreign check docs nightly moved
.NOTPARALLEL:

help:
	@echo "make demo    raw text to two small pretrained encoders in a few minutes"
	@echo "make test    the tests, in some ten minutes on two cores; TESTS=tests/model runs a part"
	@echo "make test-all  all cases of their matrices too, the long ones, and make test-oldest"
	@echo "make test-oldest  a part of them beside the oldest transformers that is supported"
	@echo "make test-foreign  what TensorFlow, bert4keras, kpe and keras-xlnet compute of checkpoints that are written here;"
	@echo "             once, some minutes and 1.3 GB: needs Python 3.9 to 3.11, FOREIGN_PYTHON=python3.10 names one"
	@echo "make check   formatting, lint, types and the links of the documents"
	@echo "make docs    the documents as a site, in build/site"
	@echo "make nightly  speed against the results that are kept for this hardware; needs a quiet machine"

demo: $(VENV)/.installed-demo
	@$(PY) -m albertine demo

# Two single-threaded workers beat one worker with two threads: most tests are too small for a second thread.
# Their processes start faster from compiled modules, also where the environment forbids to write them.
PYTEST := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false \
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest --numprocesses=auto --maxprocesses=4 \
	--dist=loadfile --no-loadscope-reorder --max-worker-restart=0 --durations=50

test: $(VENV)/.installed-dev
	@$(PYTEST) -m "not matrix" $(TESTS)

test-all: $(VENV)/.installed-dev
	@$(PYTEST) $(TESTS)
	@$(if $(TESTS),,$(MAKE) --no-print-directory test-oldest)

# The other half of a matrix of two: what is saved, beside the oldest releases. Of their own they have what
# oldest.txt names, and borrow all else, torch too, from the first environment.
test-oldest: $(OLDEST)/.installed
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false \
		$(OLDEST)/bin/python -m pytest -p no:cacheprovider tests/interop/test_pipelines.py

# No part of `make test`, which passes over these without the variables that are set here.
test-foreign: $(VENV)/.installed-dev $(FOREIGN)/.installed
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} HF_HUB_OFFLINE=1 \
		$(foreach one,$(READERS),ALBERTINE_$(one)=$(abspath $(FOREIGN)/bin/python)) \
		$(PY) -m pytest -p no:cacheprovider tests/interop/test_tensorflow_bundle.py \
		tests/interop/test_bert4keras.py tests/interop/test_kpe.py tests/interop/test_keras_xlnet.py

check: $(VENV)/.installed-dev
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@$(PY) -m mypy --platform darwin --cache-dir .mypy_cache/darwin
	@$(SITE)

docs: $(VENV)/.installed-docs
	@$(SITE)
	@echo "Written: build/site/index.html"

nightly: $(VENV)/.installed-bench
	@$(PY) -m albertine bench inference --against benchmarks/results
	@$(PY) -m albertine bench train --against benchmarks/results
	@$(PY) -m albertine bench optimizer --against benchmarks/results

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Albertine needs Python 3.11 or later; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

moved: $(VENV)/.created
	@$(PY) -m venv --without-pip $(VENV)

$(VENV)/.installed-demo: pyproject.toml constraints.txt $(VENV)/.created $(MOVED)
	@echo "Installing Albertine and what the demo needs into $(VENV), once; this takes a minute or two."
	@$(INSTALL) '.[torch,plots,serve]'
	@rm -f $(VENV)/.installed-dev
	@echo "$(CURDIR)" > $(VENV)/.place
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt $(VENV)/.created $(MOVED)
	@echo "Installing Albertine and what its tests need into $(VENV), once; this takes a few minutes."
	@$(INSTALL) '.[dev]'
	@echo "$(CURDIR)" > $(VENV)/.place
	@touch $(VENV)/.installed-demo $(VENV)/.installed-docs $@

$(VENV)/.installed-docs: pyproject.toml constraints.txt $(VENV)/.created $(MOVED)
	@echo "Installing Albertine and what its documents need into $(VENV), once; this takes a minute or two."
	@$(INSTALL) '.[docs]'
	@rm -f $(VENV)/.installed-dev
	@echo "$(CURDIR)" > $(VENV)/.place
	@touch $(VENV)/.installed-demo $@

$(OLDEST)/.installed: oldest.txt $(VENV)/.installed-dev
	@echo "Installing the oldest releases that are supported into $(OLDEST), once; this takes some seconds."
	@$(PY) -m venv --clear --without-pip $(OLDEST)
	@$(PY) -m pip --disable-pip-version-check --quiet --python $(OLDEST)/bin/python install --no-deps \
		--requirement oldest.txt
	@$(PY) -c 'import sysconfig as s; print("import site; site.addsitedir(%r)" % s.get_path("purelib"))' \
		> "$$($(OLDEST)/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')/zz-first.pth"
	@touch $@

# bert4keras says that it wants a Keras of 2019, and its test mends what it misses in a later one.
$(FOREIGN)/.installed: foreign.txt $(VENV)/.created
	@$(FOREIGN_PYTHON) -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' || \
		{ echo "TensorFlow 2.15 needs Python 3.9 to 3.11; name one: make test-foreign FOREIGN_PYTHON=..." >&2; exit 1; }
	@echo "Installing TensorFlow and programs under it into $(FOREIGN), once; this takes a few minutes."
	@$(FOREIGN_PYTHON) -m venv --clear $(FOREIGN)
	@$(FOREIGN)/bin/python -m pip --disable-pip-version-check --quiet install 'setuptools<70' wheel
	@$(FOREIGN)/bin/python -m pip --disable-pip-version-check --quiet install --no-build-isolation \
		--requirement foreign.txt
	@$(FOREIGN)/bin/python -m pip --disable-pip-version-check --quiet install --no-build-isolation --no-deps \
		bert4keras==0.11.5
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-dev
	@echo "Installing the programs to compare with into $(VENV), once; this takes a few minutes."
	@$(INSTALL) '.[bench]'
	@touch $@
