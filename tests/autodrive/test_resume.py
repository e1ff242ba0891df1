"""Training that is killed, stopped or damaged goes on as if nothing had happened."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from mmengine.hooks import Hook
from mmengine.registry import HOOKS

from autodrive.engine.checkpoint import latest_checkpoint, read_checkpoint
from autodrive.engine.train import train
from tests.autodrive.toy_training import SAMPLES, toy_config

ROOT = Path(__file__).parents[2]


@HOOKS.register_module()
class AtIteration(Hook):
    """Does something before iteration `at` (from 1)."""

    def __init__(self, at, action) -> None:
        self.at, self.action = at, ACTIONS[action]

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        if runner.iter + 1 == self.at:
            self.action()


class Crash(Exception):
    pass


def crash() -> None:
    raise Crash


def run(folder: Path, at: int = 0, action: str = "", resume: bool = False, **options) -> None:
    config = toy_config(**options)
    if at:
        config.custom_hooks.append(dict(type="AtIteration", at=at, action=action))
    train(config, folder, device="cpu", resume=resume, deterministic=True)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


ACTIONS = {"crash": crash, "term": terminate}


@pytest.fixture(autouse=True)
def _deterministic():
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Folder of a training that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


def rows(folder: Path, name: str = "losses.jsonl") -> list[dict]:
    found = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    for row in found:
        row.pop("seconds", None)
    return found


def samples(folder: Path, rank: int = 0) -> dict[str, str]:
    """The samples of every iteration; of one that ran twice, the later ones."""
    lines = (folder / f"samples_{rank}.txt").read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines)


def assert_same(a, b, path="") -> None:
    """Bitwise equality of nested checkpoints."""
    assert type(a) is type(b), path
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b), path
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b)):
            assert_same(x, y, f"{path}.{i}")
    else:
        assert a == b, path


def assert_same_training(a: Path, b: Path) -> None:
    assert latest_checkpoint(a).name == latest_checkpoint(b).name
    one, two = read_checkpoint(latest_checkpoint(a)), read_checkpoint(latest_checkpoint(b))
    for key in ("state_dict", "ema_state_dict", "optimizer", "param_schedulers"):
        assert_same(one[key], two[key], key)
    assert rows(a) == rows(b)
    assert samples(a) == samples(b)


@pytest.mark.parametrize(
    ("crash_at", "workers"),
    [(8, 0), (13, 2), (18, 0)],  # goes on from 5; from 10, within an epoch; from 15, after one
)
def test_resumed_training_is_bitwise_the_uninterrupted_one(whole, tmp_path, crash_at, workers):
    """K53."""
    with pytest.raises(Crash):
        run(tmp_path, crash_at, "crash", workers=workers)
    assert latest_checkpoint(tmp_path).name == f"iter_{(crash_at - 1) // 5 * 5}.pth"
    run(tmp_path, resume=True, workers=workers)
    assert_same_training(tmp_path, whole)
    assert rows(tmp_path, "metrics.jsonl") == rows(whole, "metrics.jsonl")
    best = [read_checkpoint(folder / "best.pth") for folder in (tmp_path, whole)]
    assert best[0]["meta"]["best"] == best[1]["meta"]["best"]
    assert_same(best[0]["state_dict"], best[1]["state_dict"])


def test_training_differs_between_iterations_and_epochs(whole):
    found = rows(whole)
    assert [row["iter"] for row in found] == list(range(1, 21))
    assert len({row["loss"] for row in found}) == 20
    rates = [row["lr"] for row in found]
    assert rates[:8] == pytest.approx([0.01 * (0.1 + 0.9 * i / 6) for i in range(7)] + [0.01])
    assert rates[10:12] == pytest.approx(
        [0.01, 0.0075]
    )  # a third of a cosine after the first epoch
    seen = [int(i) for row in samples(whole).values() for i in row.split()]
    assert sorted(seen[:SAMPLES]) == list(range(SAMPLES)) != seen[:SAMPLES]


def test_sigterm_saves_the_iteration_and_resumes(whole, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt, match=r"iter_8\.pth, from where training can go on"):
        run(tmp_path, 8, "term")
    assert latest_checkpoint(tmp_path).name == "iter_8.pth"
    assert [row["iter"] for row in rows(tmp_path)] == list(range(1, 9))
    assert signal.getsignal(signal.SIGTERM) == before
    run(tmp_path, resume=True)
    assert_same_training(tmp_path, whole)


def test_truncated_checkpoint_is_passed_over(whole, tmp_path, capsys):
    with pytest.raises(Crash):
        run(tmp_path, 18, "crash")
    newest = tmp_path / "iter_15.pth"
    newest.write_bytes(newest.read_bytes()[:-100])
    (tmp_path / ".iter_17.pth.tmp").write_bytes(b"half a checkpoint")
    run(tmp_path, resume=True)
    output = capsys.readouterr()
    assert f"{newest} is damaged and passed over" in output.err
    assert f"resuming from {tmp_path / 'iter_10.pth'}" in output.out
    assert not list(tmp_path.glob(".*.tmp"))
    assert_same_training(tmp_path, whole)


def test_another_seed_is_refused_on_resume(whole, tmp_path):
    with pytest.raises(Crash):
        run(tmp_path, 8, "crash")
    with pytest.raises(ValueError, match=r"iter_5\.pth was trained with seed 0, this run has 1"):
        train(toy_config(), tmp_path, device="cpu", seed=1, resume=True)


def test_new_training_does_not_mix_with_an_old_one(whole):
    with pytest.raises(ValueError, match=r"holds iter_20\.pth of an earlier training"):
        run(whole)


def start(folder: Path, *options: str, rank: int = 0, processes: int = 1, port: int = 0):
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    if processes > 1:
        environment |= dict(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(processes),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
    command = [sys.executable, "-m", "tests.autodrive.toy_training", str(folder), *options]
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)


def wait_for(path: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, "the training ended by itself"
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_no_more_than_the_interval(whole, tmp_path):
    """K53."""
    process = start(tmp_path, "--seconds-per-iteration", "0.2", "--workers", "1")
    wait_for(tmp_path / "iter_10.pth", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert latest_checkpoint(tmp_path).name == "iter_10.pth"
    assert start(tmp_path, "--resume").wait(timeout=120) == 0
    assert_same_training(tmp_path, whole)


def run_two(folder: Path, *options: str) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [start(folder, *options, rank=rank, processes=2, port=port) for rank in (0, 1)]


@pytest.mark.slow
def test_two_processes_stop_together_and_resume(tmp_path):
    """K53, with DDP on gloo."""
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for process in run_two(straight):
        assert process.wait(timeout=180) == 0
    both = [
        {int(i) for row in samples(straight, rank).values() for i in row.split()} for rank in (0, 1)
    ]
    first = [[int(i) for i in samples(straight, rank)["0"].split()] for rank in (0, 1)]
    assert both[0] | both[1] == set(range(SAMPLES)) and not set(first[0]) & set(first[1])

    processes = run_two(stopped, "--seconds-per-iteration", "0.2")
    wait_for(stopped / "iter_5.pth", processes[0])
    processes[1].send_signal(signal.SIGTERM)  # to one of them only
    assert all(process.wait(timeout=60) != 0 for process in processes)
    assert 5 < int(latest_checkpoint(stopped).stem.removeprefix("iter_")) < 20
    for process in run_two(stopped, "--resume"):
        assert process.wait(timeout=180) == 0
    assert_same_training(stopped, straight)
    assert samples(stopped, 1) == samples(straight, 1)
