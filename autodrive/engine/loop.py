"""Training that goes on after an interruption at the very sample where it stopped."""

import gc

from mmengine.dist import get_world_size
from mmengine.registry import LOOPS
from mmengine.runner.base_loop import BaseLoop
from torch import nn
from torch.utils.data import DataLoader

ENDLESS = 10**9  # epochs or iterations of a training that something else ends


@LOOPS.register_module()
class TrainLoop(BaseLoop):
    """Iterations over the endless row of samples of a `QueueSampler`.

    An epoch is as many iterations as one pass over the data takes, rounded up; it is the unit of schedules and of
    validation. A resumed run sets the sampler to where the interrupted one stopped, within an epoch too.

    Args:
        max_epochs, max_iters: where training ends; the smaller one counts.
        val_interval: epochs between validations; there is one at the end in any case.
    """

    def __init__(
        self,
        runner,
        dataloader: DataLoader | dict,
        max_epochs: int = ENDLESS,
        max_iters: int = ENDLESS,
        val_interval: int = 1,
    ) -> None:
        super().__init__(runner, dataloader)
        sampler = self.dataloader.sampler
        if not getattr(sampler, "infinite", False) or not hasattr(sampler, "start"):
            name = type(sampler).__name__
            raise ValueError(
                f"train_dataloader.sampler must be an infinite QueueSampler, got {name}"
            )
        self.epoch_length = len(self.dataloader)
        self.max_iters = min(max_iters, max_epochs * self.epoch_length)
        self.max_epochs = -(-self.max_iters // self.epoch_length)
        self.val_interval = val_interval
        # Under these names the Runner sets them when it resumes.
        self._epoch = self._iter = 0
        self.stop_training = False

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def iter(self) -> int:
        return self._iter

    def run(self) -> nn.Module:
        runner = self.runner
        runner.call_hook("before_train")
        gc.freeze()  # what is there now stays until the end: no need to walk over it again and again
        seen = self._iter * self.dataloader.batch_size * get_world_size()
        self.dataloader.sampler.start = seen
        batches = iter(self.dataloader)
        while self._epoch < self.max_epochs and not self.stop_training:
            runner.call_hook("before_train_epoch")
            runner.model.train()
            end = min((self._epoch + 1) * self.epoch_length, self.max_iters)
            while self._iter < end and not self.stop_training:
                self._run_iteration(next(batches))
            if self.stop_training:
                break
            runner.call_hook("after_train_epoch")
            self._epoch += 1
            due = self._epoch % self.val_interval == 0 or self._iter == self.max_iters
            if due and runner.val_loop is not None:
                runner.val_loop.run()
        gc.unfreeze()
        runner.call_hook("after_train")
        return runner.model

    def _run_iteration(self, batch: dict) -> None:
        index = self._iter % self.epoch_length
        self.runner.call_hook("before_train_iter", batch_idx=index, data_batch=batch)
        outputs = self.runner.model.train_step(batch, optim_wrapper=self.runner.optim_wrapper)
        self.runner.call_hook(
            "after_train_iter", batch_idx=index, data_batch=batch, outputs=outputs
        )
        self._iter += 1
