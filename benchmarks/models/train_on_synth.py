"""Trains a config on a synthetic dataset for some minutes and writes what it reached on scenes it never saw.

    python benchmarks/models/train_on_synth.py --config examples/bevformer/configs/tiny_synth.py \
        --minutes 9 --result benchmarks/results/bevformer-tiny-synth.json

One scene in five is unseen: 25 scenes are 20 to train on and 5 to evaluate on. Everything else that the run makes
(checkpoints, losses, pictures, report) goes to --out.
"""

import argparse
import datetime
import platform
import subprocess
from pathlib import Path

import torch

from autodrive.data.files import write_json
from autodrive.engine.demo import demo


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True)
    parser.add_argument("--result", required=True, help="JSON file to write")
    parser.add_argument("--out", help="folder of the run (default: runs/<name of the result>)")
    parser.add_argument("--scenes", type=int, default=25)
    parser.add_argument("--duration", type=float, default=10, help="of a scene, s")
    parser.add_argument("--minutes", type=float, default=9, help="of training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unseen-only", action="store_true", help="no metrics on training scenes")
    parser.add_argument("--commit", help="of this repository (default: what git says)")
    args = parser.parse_args()

    out = args.out or Path("runs") / Path(args.result).stem
    metrics = demo(
        out,
        args.config,
        scenes=args.scenes,
        duration=args.duration,
        minutes=args.minutes,
        seed=args.seed,
        splits=("val",) if args.unseen_only else ("train", "val"),
    )
    write_json(
        args.result,
        {
            "hardware": hardware(),
            "date": datetime.date.today().isoformat(),
            "commit": args.commit or git_commit(),
            "minutes": args.minutes,
            "config": Path(args.config).stem,
            "scenes": {"all": args.scenes, "unseen": args.scenes // 5, "seconds": args.duration},
            "torch": torch.__version__,
            **metrics,
        },
        indent=1,
    )
    print(f"result: {args.result}")


def hardware() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"CPU, {platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def git_commit() -> str:
    try:
        command = ["git", "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


if __name__ == "__main__":
    main()
