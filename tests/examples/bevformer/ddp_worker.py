"""Run by torchrun: gradients of three steps with a global batch of two, saved by rank 0."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.examples.bevformer.small_model import batch, make_sample, small_model

# Boxes of the two samples of each step.
BOXES = [(6, 0), (3, 8), (0, 0)]


def main(path: str) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(small_model().train())
    steps = []
    for step, boxes in enumerate(BOXES):
        samples = [make_sample(10 * step + k, boxes=n) for k, n in enumerate(boxes)]
        losses = model(*batch(*samples[rank::world]), mode="loss")
        model.zero_grad()
        sum(losses.values()).backward()
        gradients = {}
        for name, parameter in model.module.named_parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    raise RuntimeError(f"{name} has no gradient")
                gradients[name] = parameter.grad.clone()
        steps.append(gradients)
    if rank == 0:
        torch.save(steps, path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
