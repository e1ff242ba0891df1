#!/usr/bin/env bash
# Installs one part of the environment into .venv, and notes the seconds it took. Called by the Makefile:
#   ./install.sh torch PYTHON "TORCH REQUIREMENTS" | requirements | mmcv | autodrive | dev
set -euo pipefail
cd "$(dirname "$0")"
step=$1
stamps=.venv/stamps
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }
started=$(date +%s)
echo "==> install: $step"

case $step in
  torch)
    python=$2
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
      { echo "error: $python is $("$python" -V); Python 3.10 or newer is needed (make PYTHON=python3.x ...)" >&2; exit 1; }
    "$python" -m venv .venv ||
      { echo "error: $python -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
    mkdir -p $stamps
    site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    # The folder of a torch that the active Python already has, "" if it has none.
    active=$("$python" -c 'import torch, torchvision, pathlib; print(pathlib.Path(torch.__file__).parents[1])' 2>/dev/null || true)
    if [ -n "$active" ]; then
      echo "using the torch in $active"
      echo "$active" > "$site/active-torch.pth"
    else
      pip install -q $3
    fi
    .venv/bin/python -c 'import torch; print("torch", torch.__version__)'
    ;;
  requirements)
    pip install -q -r requirements.txt
    pip install -q --no-deps -r requirements-no-deps.txt
    ;;
  mmcv)
    torch_dir=$(.venv/bin/python -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parent)')
    MMCV_WITH_OPS=1 MMCV_TORCH_DIR=$torch_dir pip install --no-deps --force-reinstall ./mmcv
    ;;
  autodrive)
    pip install -q --no-deps -e .
    ;;
  dev)
    pip install -q -r requirements-dev.txt
    ;;
  *)
    echo "error: unknown step '$step'" >&2
    exit 2
    ;;
esac

STEP=$step SECONDS_TAKEN=$(($(date +%s) - started)) .venv/bin/python - $stamps/seconds.json <<'PY'
import json, os, pathlib, sys

path = pathlib.Path(sys.argv[1])
seconds = json.loads(path.read_text()) if path.exists() else {}
seconds[f"install {os.environ['STEP']}"] = int(os.environ["SECONDS_TAKEN"])
path.with_suffix(".tmp").write_text(json.dumps(seconds, indent=1))
path.with_suffix(".tmp").replace(path)
PY
touch $stamps/"$step"
