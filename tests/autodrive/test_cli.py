"""The command `autodrive`: quick help, and one clear line for everything that is wrong."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autodrive import cli

ROOT = Path(__file__).parents[2]
NANO = str(ROOT / "examples" / "bevformer" / "configs" / "nano.py")


def fail(capsys, *argv: str) -> tuple[int | str, str]:
    """Exit code and the one line on stderr."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(list(argv))
    line = capsys.readouterr().err
    code = exit_.value.code
    if isinstance(code, str):  # sys.exit(message) prints it and gives 1
        line, code = f"{line}{code}\n", 1
    assert line.count("\n") == 1, line
    return code, line.strip()


def test_overview_is_quick_and_loads_no_torch():
    code = "\n".join(
        [
            "import sys, atexit",
            "from autodrive import cli",
            "atexit.register(lambda: print('torch' in sys.modules))",
            "cli.main(['--help'])",
        ]
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert time.monotonic() - started < 2  # 0.1 s on a quiet machine
    assert done.returncode == 0 and done.stdout.endswith("False\n")
    for command in cli.COMMANDS:
        assert f"  {command} " in done.stdout


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main([*command.split(), "--help"])
    output = capsys.readouterr().out
    assert exit_.value.code == 0
    assert output.startswith(f"usage: autodrive {command}") and "--debug" in output


@pytest.mark.parametrize("argv", [["trian"], ["data"], ["data", "sinth"], []])
def test_unknown_command(argv, capsys):
    if argv in ([], ["data"]):
        with pytest.raises(SystemExit) as exit_:
            cli.main(argv)
        assert exit_.value.code == 0 and "usage" in capsys.readouterr().out
    else:
        code, line = fail(capsys, *argv)
        assert code == 1 and f"there is no command {' '.join(argv)!r}" in line


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["train", NANO], "the following arguments are required: --data"),
        (["train", NANO, "--data", "x", "--device", "tpu"], "invalid choice: 'tpu'"),
        (["infer", NANO], "required: checkpoint, --data, --out"),
        (["data", "synth"], "required: --out"),
        (["data", "synth", "--out", "x", "--image-size", "big"], "expected WxH"),
    ],
)
def test_wrong_usage(argv, expected, capsys):
    code, line = fail(capsys, *argv)
    assert code == 2 and expected in line and "--help" in line


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["train", "no.py", "--data", "x"], "config .*no.py does not exist"),
        (["train", NANO, "--data", "/nowhere"], "data root /nowhere is not a folder"),
        (["train", NANO, "--data", "x", "--cfg-options", "a.b=1"], "the config has no 'a'"),
        (["eval", NANO, "no.pth", "--data", "/nowhere"], "data root /nowhere is not a folder"),
        (["demo", "--config", "no.py"], "config .*no.py does not exist"),
        (["data", "prepare", "--root", "/nowhere"], "/nowhere"),
        (["data", "check", "--root", "/nowhere"], "/nowhere"),
    ],
)
def test_bad_input_is_one_line(argv, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, line = fail(capsys, *argv)
    name = " ".join(argv[:2]) if argv[0] == "data" else argv[0]
    assert code == 1 and line.startswith(f"autodrive {name}: error: ")
    assert re.search(expected, line)


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(FileNotFoundError):
        cli.main(["train", "no.py", "--data", "x", "--debug"])


def test_missing_checkpoint_and_wrong_file(synth_root, tmp_path, capsys):
    from autodrive.data.prepare import prepare

    prepare(synth_root, out=tmp_path)
    capsys.readouterr()
    code, line = fail(capsys, "eval", NANO, "no.pth", "--data", str(tmp_path))
    assert code == 1 and "checkpoint no.pth does not exist" in line
    (tmp_path / "text.pth").write_text("hello")
    code, line = fail(capsys, "eval", NANO, str(tmp_path / "text.pth"), "--data", str(tmp_path))
    assert code == 1 and "text.pth is damaged or no checkpoint" in line


def test_messages_of_several_lines_become_one(monkeypatch, capsys):
    from autodrive.data import check

    def complain(args):
        raise ValueError("first line\n   second line")

    monkeypatch.setattr(check, "run", complain)
    code, line = fail(capsys, "data", "check", "--root", "x")
    assert line == "autodrive data check: error: first line second line" and code == 1


def test_interrupt_has_its_own_exit_code(monkeypatch, capsys):
    from autodrive.data import check

    def interrupt(args):
        raise KeyboardInterrupt("stopped at iter_7.pth; --resume goes on")

    monkeypatch.setattr(check, "run", interrupt)
    code, line = fail(capsys, "data", "check", "--root", "x")
    assert code == 130 and line == "autodrive data check: stopped at iter_7.pth; --resume goes on"
