# make demo   set everything up, make a small dataset, train BEVFormer on it, evaluate, draw pictures
# make test   set everything up, lint, run all tests
# make hip-check   compile the ops for AMD GPUs in a throw-away toolchain, write what each kernel uses
# make lint, make format, make setup, make clean
#
# Everything is installed into .venv. If the active Python has a torch (ROCm or CUDA builds come with the vendor's
# images), that torch is used as is; otherwise TORCH is installed from the package index.

PYTHON ?= python3
TORCH  ?= torch==2.14.1 torchvision==0.29.1
RUN    ?= runs/demo

BIN    := .venv/bin
MMCV   := $(shell find mmcv -type f -not -path '*/build/*' -not -name '*.pyc' 2>/dev/null)
STAMPS := .venv/stamps

.DELETE_ON_ERROR:
.PHONY: demo test hip-check lint format setup clean

demo: setup
	$(BIN)/autodrive demo --out $(RUN) --install-seconds $(STAMPS)/seconds.json

test: setup $(STAMPS)/dev lint
	$(BIN)/python -m pytest tests
	$(BIN)/python -m tests.mmcv.hip --optional --table build/hip/resources.md

hip-check: setup $(STAMPS)/dev
	$(BIN)/python -m tests.mmcv.hip

lint: $(STAMPS)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	find mmcv/csrc -name '*.h' -o -name '*.cpp' -o -name '*.cu' | xargs $(BIN)/clang-format --dry-run -Werror

format: $(STAMPS)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find mmcv/csrc -name '*.h' -o -name '*.cpp' -o -name '*.cu' | xargs $(BIN)/clang-format -i

setup: $(STAMPS)/autodrive

# install.sh also records the seconds that each step took, for the demo's table
$(STAMPS)/torch: install.sh
	./install.sh torch "$(PYTHON)" "$(TORCH)"

$(STAMPS)/requirements: $(STAMPS)/torch requirements.txt requirements-no-deps.txt
	./install.sh requirements

$(STAMPS)/mmcv: $(STAMPS)/requirements $(MMCV)
	./install.sh mmcv

$(STAMPS)/autodrive: $(STAMPS)/mmcv pyproject.toml
	./install.sh autodrive

$(STAMPS)/dev: $(STAMPS)/torch requirements-dev.txt
	./install.sh dev

clean:
	rm -rf .venv build mmcv/build *.egg-info
