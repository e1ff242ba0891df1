"""Which key frames a process sees, and in which order."""

from collections.abc import Iterator

import numpy as np
from mmengine.dist import get_dist_info
from mmengine.registry import DATA_SAMPLERS
from torch.utils.data import Sampler

from .dataset import NuScenesSequenceDataset


@DATA_SAMPLERS.register_module()
class QueueSampler(Sampler):
    """Training order: an endless row of shuffled epochs, dealt to the processes in turn.

    It yields (seed, epoch, index), from which the dataset makes its random choices, so that position p of the row is
    the same sample with the same augmentation in every run: a resumed run sets `start` and goes on with what the
    interrupted one would have seen.

    Args:
        infinite: go on for ever, for loops over iterations; else one pass over the data, for loops over epochs.
    """

    def __init__(
        self,
        dataset: NuScenesSequenceDataset,
        shuffle: bool = True,
        seed: int | None = None,
        infinite: bool = True,
    ) -> None:
        self.size = len(dataset)
        self.shuffle = shuffle
        self.seed = seed or 0
        self.infinite = infinite
        self.epoch = 0
        self.start = 0
        self.rank, self.world_size = get_dist_info()

    def set_epoch(self, epoch: int) -> None:
        if not self.infinite:
            self.epoch = epoch

    def _order(self, epoch: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(self.size)
        return np.random.default_rng([self.seed, epoch]).permutation(self.size)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        if not self.infinite:
            # The last ones are filled up from the front, so that every process has as many.
            order = np.resize(self._order(self.epoch), len(self) * self.world_size)
            mine = order[self.rank :: self.world_size]
            yield from ((self.seed, self.epoch, int(index)) for index in mine)
            return
        position = self.start + self.rank
        known, order = -1, np.empty(0)
        while True:
            epoch, place = divmod(position, self.size)
            if epoch != known:
                known, order = epoch, self._order(epoch)
            yield self.seed, epoch, int(order[place])
            position += self.world_size

    def __len__(self) -> int:
        return -(-self.size // self.world_size)


@DATA_SAMPLERS.register_module()
class SceneSampler(Sampler):
    """Every key frame once, in order, and a scene never split: models with memory need its frames one by one.

    Each process gets whole scenes, next to each other, as equal in frames as scenes allow. A process may get none.
    """

    def __init__(
        self, dataset: NuScenesSequenceDataset, shuffle: bool = False, seed: int | None = None
    ) -> None:
        if shuffle:
            raise ValueError("SceneSampler keeps the order of time: shuffle must be False")
        rank, world_size = get_dist_info()
        self.indices = shares(dataset.scene_tokens, world_size)[rank]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


def shares(scene_tokens: list[str], parts: int) -> list[list[int]]:
    """Indices of a list that is sorted by scene, cut into contiguous parts at borders of scenes.

    A scene goes to the part in which its middle would lie if all were cut evenly.
    """
    result: list[list[int]] = [[] for _ in range(parts)]
    start = 0
    for end in range(1, len(scene_tokens) + 1):
        if end == len(scene_tokens) or scene_tokens[end] != scene_tokens[start]:
            part = (start + end) * parts // (2 * len(scene_tokens))
            result[part].extend(range(start, end))
            start = end
    return result
