# The commands of the project; `make help` lists them. Everything is installed into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# TORCH=2.14, beside any command, means another release of torch than the default, in an environment of its own.
DEFAULT_TORCH := 2.13
OTHER_TORCH := $(filter-out $(DEFAULT_TORCH),$(TORCH))
TORCH_PINS := requirements/torch-$(OTHER_TORCH).txt
OTHER_TORCHES := $(patsubst requirements/torch-%.txt,%,$(wildcard requirements/torch-*.txt))
ifneq ($(OTHER_TORCH),$(filter $(OTHER_TORCHES),$(OTHER_TORCH)))
$(error there are no pins for torch $(OTHER_TORCH); TORCH is one of $(OTHER_TORCHES), or $(DEFAULT_TORCH), the default)
endif
TORCH_SUFFIX := $(if $(OTHER_TORCH),-torch-$(OTHER_TORCH))
VENV := .venv$(TORCH_SUFFIX)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CUDA_VENV := .venv-cuda
CUDA_PIP := $(CUDA_VENV)/bin/python -m pip --disable-pip-version-check
AUDIT_VENV := .venv-audit
DOCS_VENV := .venv-docs
LOCKS := $(wildcard requirements/*.txt)
PROTOS := $(shell find protos -name '*.proto' 2>/dev/null)
PROTO_STAMP := exporter/config/pb/.stamp
INSTALLED := $(VENV)/.installed
WARMED_UP := $(VENV)/.warmed-up
CODE := benchmarks cli deploy docs examples exporter jobs launcher processes protos service slipway telemetry tests worker setup.py

# The pins are of 3.11, which is taken first. Override with `make PYTHON=/path/to/python …`.
is_known = $(shell $(1) -c 'import sys; print((3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null)
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3 python,$(if $(filter True,$(call is_known,$(name))),$(name))))

# Tests in as many processes, a file at a time. Each can take 3 GB while it compiles; `make test TEST_PROCESSES=8` where
# there is room, and ARGS="-n 0 …" for none but pytest's own, as a debugger needs.
TEST_PROCESSES ?= 2

##@ Run

.PHONY: demo
demo: install ## train a small model on MovieLens-100K, export it, and measure the packages
	@$(BIN)/python -m examples.movielens.demo

.PHONY: up
up: install ## start Redis, the API and a worker, print their URLs, and keep running; ARGS="--port 9000"
	@$(BIN)/python -m launcher $(ARGS)

.PHONY: wheels
wheels: $(INSTALLED) ## build the wheel and the sdist of `slipway` and of `slipway-service`, into dist/
	@$(PIP) install -qq 'build==1.6.1'
	@$(BIN)/python -m build --outdir dist slipway
	@$(BIN)/python -m build --outdir dist .

##@ Work on it

.PHONY: install
install: $(INSTALLED) $(PROTO_STAMP) $(WARMED_UP) ## install everything, pinned, into .venv; TORCH=2.14 into .venv-torch-2.14

.PHONY: check
check: install ## formatting, lint, types, import contracts, spelling
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy $(CODE)
	@$(BIN)/lint-imports
	@$(BIN)/codespell

.PHONY: test
test: install ## all tests; narrow with ARGS, as in make test ARGS="tests/jobs -k lease"
	@$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder \
	  -m 'not (browser or commands or families or faults or fuzz or gpubuild or planted or ranks)' $(ARGS)

.PHONY: families
families: install ## every recorded model of every family, exported in both modes, against its recordings; random configs
	@$(BIN)/python -m pytest -q tests/e2e/test_recorded_outputs.py tests/e2e/test_two_stage.py \
	  tests/e2e/test_other_families.py tests/e2e/test_other_clouds.py tests/e2e/test_low_precision.py tests/exporter/trace/test_untraceable.py \
	  tests/exporter/models/test_export.py tests/exporter/models/test_export_match.py \
	  -m 'families or not families' $(ARGS)
	@$(BIN)/python -m pytest -q tests/exporter/models tests/exporter/config -m 'families and not slow' $(ARGS)

.PHONY: planted
planted: install ## lies of every step of an export, none of which is published, and the smallest case of planted failures
	@$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) -m 'planted or not planted' tests/planted/test_lies.py $(ARGS)
	@$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile -m 'planted or not planted' tests/planted \
	  --ignore tests/planted/test_lies.py $(ARGS)
	@$(BIN)/python -m pytest -q -m planted tests/exporter/minify tests/exporter/pipeline/test_crash_report.py tests/e2e $(ARGS)

.PHONY: browser
browser: install ## the dashboard in a real Chromium; pictures go to .slipway/screenshots
	@command -v chromium chromium-browser google-chrome >/dev/null || $(call stop,this needs Chromium,chromium)
	@$(BIN)/python -m pytest -q -m browser --pictures .slipway/screenshots tests/dashboard tests/e2e $(ARGS)
	@echo 'pictures of the pages: .slipway/screenshots'

.PHONY: faults
faults: install ## break something at every stage of real exports; the table goes to .slipway/faults.md
	@$(BIN)/python -m pytest -q tests/faults -m 'faults or not faults' $(ARGS)

.PHONY: ranks
ranks: install ## exports on several ranks, hosts and workers, one of which dies, is late, or never comes
	@$(BIN)/python -m pytest -q tests/e2e/test_sharded.py tests/e2e/test_killed_rank.py \
	  tests/e2e/test_several_hosts.py tests/e2e/test_called_workers.py -m 'ranks or not ranks' $(ARGS)

.PHONY: gpu
gpu: install ## on a machine with a GPU: test and measure kernels and exports, half an hour
	@trap 'exit 130' INT; failed=0; \
	$(BIN)/python -m pytest -q tests/gpu $(ARGS) || failed=1; \
	$(BIN)/python -m benchmarks.gpu || failed=1; \
	exit $$failed

.PHONY: gpu-build
gpu-build: $(CUDA_VENV)/.installed ## without a GPU: compile packages for sm_90 and inspect them; 6 GB in .venv-cuda, half an hour
	@$(CUDA_VENV)/bin/python protos/compile.py
	@$(CUDA_VENV)/bin/python -m pytest -q -m gpubuild tests/gpu_build $(ARGS)

# Of the default environment, whatever TORCH and PYTHON say of the other machine.
.PHONY: gpu-kit
gpu-kit: ## into .gpu-kit: what a GPU machine without a package index lacks; PYTHON=3.12 TORCH=2.11 are that machine's
	@test -x .venv/bin/python || { echo 'run make install first' >&2; exit 1; }
	@.venv/bin/python -m deploy.gpu_kit $(if $(filter 3.%,$(PYTHON)),--python $(PYTHON)) $(if $(TORCH),--torch $(TORCH)) $(ARGS)

.PHONY: bench
bench: install ## run the benchmarks of benchmarks/README.md, hours and 25 GB of disk; ARGS="service warm" for some
	@$(BIN)/python -m benchmarks $(ARGS)

.PHONY: attacks
attacks: install ## attack running programs and compare what it costs them with the bounds; ARGS="NAME" for some
	@$(BIN)/python -m benchmarks.attacks $(ARGS)

.PHONY: board
board: install ## export every model family in every mode and precision, compare with tests/board/last.json; ARGS=--reduced
	@mkdir -p .slipway
	@$(BIN)/python -m benchmarks.board --zoo tests/board/zoo.json --against tests/board/last$(TORCH_SUFFIX).json \
	  --record .slipway/board$(TORCH_SUFFIX).json --html .slipway/board$(TORCH_SUFFIX).html $(ARGS)

.PHONY: commands
commands: install ## run what the documents tell to type, the first run of README.md among it; some minutes
	@$(BIN)/python -m pytest -q tests/documents -m 'commands or not commands' $(ARGS)

.PHONY: docs
docs: $(DOCS_VENV)/.installed ## the documents as a site, its links checked, into .slipway/site
	@$(DOCS_VENV)/bin/python -m sphinx --fresh-env --fail-on-warning --keep-going --quiet --conf-dir docs \
	  --doctree-dir .slipway/site-pages --builder html . .slipway/site
	@echo 'the documents: .slipway/site/index.html'

.PHONY: pictures
pictures: install ## take the pictures of the documents again (docs/pictures/); needs Chromium
	@$(BIN)/python -m pytest -q -m browser --pictures .slipway/screenshots tests/dashboard/test_picture.py $(ARGS)
	@for picture in docs/pictures/*.png; do cp ".slipway/screenshots/$${picture##*/}" docs/pictures/; done

.PHONY: release-notes
release-notes: ## print the notes of a version out of CHANGELOG.md: make release-notes VERSION=0.1.0
	@$(PYTHON) -m deploy.release_notes $(VERSION)

.PHONY: format
format: install ## format and sort imports in place
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: fuzz
fuzz: install ## random requests, events, configs, checkpoints, rows and paths, thousands of each
	@$(BIN)/python -m pytest -q -m fuzz --durations=0 tests/service tests/fuzz tests/exporter/modes $(ARGS)

.PHONY: openapi
openapi: install ## write docs/openapi.json; ARGS=--breaking allows changes that break callers
	@$(BIN)/python -m service.openapi $(ARGS)

.PHONY: configuration
configuration: install ## write docs/configuration.md from the settings classes
	@$(BIN)/python -m docs.configuration

.PHONY: chart
chart: install ## write the comments of the chart's values, and the table of its README, from values.schema.json
	@$(BIN)/python -m deploy.chart

.PHONY: deploy-check
deploy-check: install ## run the images' install steps and the chart's tests; ARGS as in make test
	@$(BIN)/python -m deploy.prove
	@$(BIN)/python -m pytest -q tests/deploy $(ARGS)

.PHONY: image-pins
image-pins: $(INSTALLED) ## after make lock: write docker/pins/, which the images install from
	@$(BIN)/python -m deploy.pins

.PHONY: image-digests
image-digests: $(INSTALLED) ## ask the registries whether they have the images that are pinned by digest
	@$(BIN)/python -m deploy.digests

.PHONY: audit
audit: $(INSTALLED) $(AUDIT_VENV)/.installed ## ask PyPI for known vulnerabilities of all pins; ARGS="--vulnerability-service osv" asks OSV
	@$(BIN)/python -m deploy.audit $(AUDIT_VENV)/bin/pip-audit $(ARGS)

.PHONY: protos
protos: $(INSTALLED) ## compile protos/ again
	@rm -f $(PROTO_STAMP)
	@$(MAKE) --no-print-directory $(PROTO_STAMP)

.PHONY: lock
lock: $(INSTALLED) ## resolve the dependencies of pyproject.toml into requirements/
	@$(PIP) install -qq 'pip-tools==7.6.2'
	@$(call lock,torch,--extra torch,)
	@$(call lock,dev,--extra service --extra worker --extra exporter --extra gs --extra az --extra dev,-c requirements/torch.txt)
	@$(call lock,service,--extra service --extra gs --extra az,-c requirements/dev.txt)
	@$(call lock,worker,--extra worker --extra gs --extra az,-c requirements/dev.txt)
	@$(call lock,exporter,--extra exporter,-c requirements/dev.txt -c requirements/torch.txt)
	@$(call lock,docs,,-c requirements/dev.txt,requirements/docs.in)

.PHONY: clean
clean: ## remove the virtual environments, generated code and caches
	@rm -rf .venv .venv-torch-* $(CUDA_VENV) $(AUDIT_VENV) $(DOCS_VENV) exporter/config/pb build dist *.egg-info slipway/build slipway/*.egg-info .slipway .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- how it is done -----------------------------------------------------------------------------------

# The stamp is written last, so that an interrupted install is continued; pip skips what is installed.
$(INSTALLED): $(LOCKS) pyproject.toml setup.py slipway/pyproject.toml | $(VENV)/.created
	@echo 'installing torch $(OTHER_TORCH) (1/4)'
	@options="$$($(BIN)/python -m deploy.torch_source $(if $(OTHER_TORCH),$(TORCH_PINS),requirements/torch.txt))"; \
	  $(PIP) install -qq $$options $(if $(OTHER_TORCH),torch triton -c $(TORCH_PINS),-r requirements/torch.txt)
	@echo 'installing the other dependencies (2/4)'
	@$(PIP) install -qq -r requirements/dev.txt
	@echo 'installing torchrec and fbgemm for CPU (3/4)'
	@$(PIP) install -qq --no-deps $(if $(OTHER_TORCH),fbgemm-gpu-cpu torchrec -c $(TORCH_PINS),-r requirements/cpu.txt)
	@echo 'installing slipway itself (4/4)'
	@$(PIP) install -qq --no-deps --no-build-isolation --editable . --editable ./slipway
	@if command -v npm >/dev/null; then echo 'installing Azurite, for tests'; \
	  timeout 180 npm ci --silent --ignore-scripts --no-audit --no-fund --prefix tests/stores/azurite </dev/null \
	  || { rm -rf tests/stores/azurite/node_modules; echo 'Azurite was not installed: tests of az:// are skipped'; }; fi
	@if command -v npm >/dev/null; then echo 'installing axe-core, for tests of the dashboard'; \
	  timeout 180 npm ci --silent --ignore-scripts --no-audit --no-fund --prefix tests/dashboard/axe </dev/null \
	  || { rm -rf tests/dashboard/axe/node_modules; echo 'axe-core was not installed: its tests are skipped'; }; fi
	@touch $@

# `===` takes exactly this version, which is the build for CUDA, and not another build that a machine's index offers
# beside it (+cpu). torch's wheels lack the headers of the CUDA compiler and of CUDA's C++ library.
$(CUDA_VENV)/.installed: $(LOCKS) | $(CUDA_VENV)/.created
	@echo 'installing torch for CUDA (1/3)'
	@$(CUDA_PIP) install -qq 'torch===$(shell sed -n 's/^torch==\([0-9.]*\).*/\1/p' requirements/torch.txt)'
	@$(CUDA_PIP) install -qq 'cuda-toolkit[crt,cccl]'
	@echo 'installing the other dependencies (2/3)'
	@$(CUDA_PIP) install -qq -r requirements/torch.txt -r requirements/dev.txt
	@echo 'installing torchrec and fbgemm for CPU (3/3)'
	@$(CUDA_PIP) install -qq --no-deps -r requirements/cpu.txt
	@touch $@

$(DOCS_VENV)/.installed: requirements/docs.txt | $(DOCS_VENV)/.created
	@echo 'installing Sphinx'
	@$(DOCS_VENV)/bin/python -m pip --disable-pip-version-check install -qq --no-deps -r requirements/docs.txt
	@touch $@

# Apart from .venv, whose packages it audits.
$(AUDIT_VENV)/.installed: Makefile | $(AUDIT_VENV)/.created
	@$(AUDIT_VENV)/bin/python -m pip --disable-pip-version-check install -qq 'pip-audit==2.10.1'
	@touch $@

$(VENV)/.created $(CUDA_VENV)/.created $(AUDIT_VENV)/.created $(DOCS_VENV)/.created: %/.created:
	@test -n '$(PYTHON)' || $(call stop,Slipway needs Python 3.11 to 3.13 and found none,python3 python3-venv)
	@command -v g++ >/dev/null || $(call stop,Slipway needs g++ to compile packages and found none,g++)
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(call stop,$(PYTHON) cannot make a virtual environment,python3-venv)
	@echo 'creating $* with $(PYTHON)'
	@$(PYTHON) -m venv --clear $*
	@touch $@

$(PROTO_STAMP): $(PROTOS) protos/compile.py | $(INSTALLED)
	@$(BIN)/python protos/compile.py
	@touch $@

# Compiles ahead what all packages share (twenty seconds), which saves every export that compiles five.
$(WARMED_UP): $(INSTALLED) $(PROTO_STAMP)
	@echo 'preparing the compiler'
	@$(BIN)/python -m worker.warm_up
	@touch $@

stop = { echo '$(1); on Debian or Ubuntu: apt install $(2)' >&2; exit 1; }

# lock <file> <extras> <constraints> <input, else pyproject.toml>. Removed from the result: the suffix of the torch build that
# this machine's index offers (+cpu), and the CUDA libraries that one build of torch pins for itself.
define lock
echo 'requirements/$(1).txt' && CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/pip-compile --quiet --strip-extras \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --allow-unsafe --annotation-style=line \
  $(2) $(3) $(ARGS) --output-file requirements/$(1).txt $(or $(4),pyproject.toml) \
  && sed -i -E $(if $(filter torch,$(1)),,-e '/^(torch|triton)==/d') -e '/^nvidia-ml-py=/!{/^(nvidia|cuda)-/d}' -e 's/\+cpu/    /' \
  -e 's/-c requirements.[a-z]+.txt, //g' requirements/$(1).txt
endef
