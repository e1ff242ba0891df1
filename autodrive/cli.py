"""The command `autodrive`. Sub-commands are imported when they are used: torch takes seconds to load."""

import argparse
import importlib
import sys
from typing import NoReturn

COMMANDS = {
    "train": ("autodrive.engine.train", "train a model from a config"),
    "eval": ("autodrive.engine.evaluate", "official metrics of a checkpoint"),
    "infer": ("autodrive.engine.infer", "predictions and pictures of a checkpoint"),
    "demo": ("autodrive.engine.demo", "small dataset, training, evaluation, pictures: all in one"),
    "data synth": ("autodrive.data.synth", "write a synthetic dataset in nuScenes format"),
    "data prepare": ("autodrive.data.prepare", "make the info files of a nuScenes folder"),
    "data check": ("autodrive.data.check", "find damaged images and point clouds"),
}
INTERRUPTED = 130  # exit code of a command that Ctrl-C ended, by convention of shells


class Parser(argparse.ArgumentParser):
    """argparse, but wrong usage is one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    debug = "--debug" in argv
    argv = [argument for argument in argv if argument != "--debug"]
    name = " ".join(argv[:2]) if argv[:1] == ["data"] else "".join(argv[:1])
    if name not in COMMANDS:
        _overview(name)
    try:
        module = importlib.import_module(COMMANDS[name][0])
        parser = Parser(
            prog=f"autodrive {name}",
            description=module.__doc__,
            epilog="--debug shows the traceback of an error.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(parser)
        module.run(parser.parse_args(argv[len(name.split()) :]))
    except KeyboardInterrupt as interrupt:
        print(f"autodrive {name}: {interrupt or 'interrupted'}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception as error:
        if debug:
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        sys.exit(f"autodrive {name}: error: {message}")


def _overview(name: str) -> NoReturn:
    lines = ["usage: autodrive COMMAND [options]   (autodrive COMMAND --help)", ""]
    lines += [f"  {command:14}{text}" for command, (_, text) in COMMANDS.items()]
    if name in ("", "-h", "--help", "data", "data -h", "data --help"):
        print("\n".join(lines))
        sys.exit(0)
    sys.exit(f"autodrive: error: there is no command {name!r} (see autodrive --help)")
