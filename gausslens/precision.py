"""Float32 matrix products in float32.

A program may have allowed TF32 on its GPU, bfloat16 on its CPU, or autocast, for the float32 products of its network.
Work whose error bound assumes float32 runs inside `float32_products`, which disables these and restores them afterwards.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


@contextmanager
def float32_products(device: torch.device) -> Iterator[None]:
    """Keep 24 bits in float32 matrix products on `device`, whatever precision and autocast the caller has set."""
    libraries: Any = torch.backends
    with torch.autocast(device.type, enabled=False), ExitStack() as afterwards:
        # torch 2.9 replaced the switch for all backends by one for each backend, and made mixing them an error.
        if not hasattr(libraries.cuda.matmul, "fp32_precision"):
            afterwards.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("highest")
        else:
            for backend in (libraries.cuda.matmul, libraries.mkldnn.matmul):
                afterwards.callback(setattr, backend, "fp32_precision", backend.fp32_precision)
                backend.fp32_precision = "ieee"
        yield
