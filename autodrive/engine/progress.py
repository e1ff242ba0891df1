"""How far something is and how long it will still take: a bar on a terminal, a line now and then in a log."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from mmengine.dist import is_main_process
from tqdm import tqdm

Item = TypeVar("Item")
LINE_EVERY = 10.0  # s, where there is no terminal


class Progress:
    """Progress of one process (the first) towards a known total.

    Args:
        label: what is going on.
        total: how much there is to do, in `unit`.
        done: how much of it an earlier run had done.
    """

    def __init__(self, label: str, total: float, unit: str = "", done: float = 0) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = self.initial = done
        self.shown = is_main_process()
        self.began = self.printed = time.monotonic()
        self.bar = None
        if self.shown and sys.stderr.isatty():
            form = "{desc} {percentage:3.0f}%|{bar}| {n:.0f}/{total:.0f} " + unit
            form += ", left {remaining}{postfix}"
            self.bar = tqdm(desc=label, total=total, initial=done, bar_format=form)

    def update(self, done: float, note: str = "") -> None:
        """`done` of the total; `note` is shown behind it."""
        self.done = min(done, self.total)
        if self.bar is not None:
            self.bar.set_postfix_str(note, refresh=False)
            self.bar.update(self.done - self.bar.n)
        elif self.shown and time.monotonic() - self.printed >= LINE_EVERY:
            self._print(note)

    def close(self, note: str = "") -> None:
        if self.bar is not None:
            self.bar.close()
        elif self.shown:
            self._print(note)
        self.shown, self.bar = False, None

    def _print(self, note: str) -> None:
        self.printed = time.monotonic()
        line = f"{self.label}: {self.done:.0f}/{self.total:.0f} {self.unit}".rstrip()
        new = self.done - self.initial
        if 0 < new and self.done < self.total:
            left = (self.printed - self.began) / new * (self.total - self.done)
            line += f", left {tqdm.format_interval(left)}"
        print(f"{line}, {note}" if note else line, file=sys.stderr, flush=True)


def track(items: Iterable[Item], label: str, total: int, unit: str = "") -> Iterator[Item]:
    """The items, with progress shown while they are consumed."""
    progress = Progress(label, total, unit)
    for count, item in enumerate(items, start=1):
        yield item
        progress.update(count)
    progress.close()
