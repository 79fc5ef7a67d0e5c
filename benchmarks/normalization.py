"""How often compiled group normalisation passes over memory, by torch's own count, which takes no GPU.

    python benchmarks/normalization.py [--operations 60] [--reads 8]

On a GPU what lies between convolutions waits for memory: a pass reads or writes all activations once, in bf16. One block's
normalisation with SiLU, forward and backward, as it is trained: x + offset, channels last. Counted are the bytes that the
compiler plans to move, with the rules it has for GPUs; beside ours, torch's own normalisation. Above so many operations, or
reads, what is used twice is written down instead of computed again: torch's own thresholds are 30 and 4, ours 60 and 8.
"""

import argparse
import json
import logging
import os
import warnings

os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # what is cached is not counted

import torch
import torch._inductor.config as settings
import torch.nn.functional as F
from torch._inductor import ir, metrics

from gausslens.nn.acceleration import WRITTEN_ABOVE
from gausslens.nn.normalization import GroupNorm

SHAPES = ((8, 128, 64, 64), (8, 256, 32, 32))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=WRITTEN_ABOVE["realize_opcount_threshold"])
    parser.add_argument("--reads", type=int, default=WRITTEN_ABOVE["realize_reads_threshold"])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch._logging.set_logs(inductor_metrics=True)  # bytes are counted only if they are logged
    for name in list(logging.root.manager.loggerDict):
        for handler in logging.getLogger(name).handlers:
            handler.setLevel(logging.ERROR)
    ir.is_cpu = lambda _: False  # a CPU's rules keep whatever was slow to compute
    settings.realize_opcount_threshold, settings.realize_reads_threshold = args.operations, args.reads
    settings.realize_acc_reads_threshold = 8  # as for GPUs, where the number is not set
    for shape in SHAPES:
        for name, normalize in (("ours", GroupNorm.per_channel), ("torch", plain)):
            forward, backward = (round(count, 2) for count in passes(normalize, shape))
            print(json.dumps({"what": name, "shape": shape, "forward": forward, "backward": backward}))


def plain(norm, x, offset):
    """torch's own normalisation of x + offset, in float32 as under autocast."""
    return torch.nn.GroupNorm.forward(norm, (x + offset[:, :, None, None].to(x.dtype)).float())


def passes(normalize, shape):
    """Passes over the activations, forward and backward."""
    torch._dynamo.reset()
    metrics.reset()
    norm = GroupNorm(32, shape[1])
    x = torch.randn(shape, dtype=torch.bfloat16).to(memory_format=torch.channels_last).requires_grad_()
    offset = torch.randn(shape[:2], requires_grad=True)
    y = torch.compile(lambda x, offset: F.silu(normalize(norm, x, offset)).to(x.dtype), fullgraph=True)(x, offset)
    forward = metrics.num_bytes_accessed
    torch.autograd.grad(y, (x, offset, norm.weight, norm.bias), torch.randn_like(y))
    return forward / (2 * x.numel()), (metrics.num_bytes_accessed - forward) / (2 * x.numel())


if __name__ == "__main__":
    main()
