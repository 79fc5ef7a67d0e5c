"""Logits that are computed again: the largest of each query must be the true one, however wrong the fast ones were."""

import torch

from gausslens._kernels.softmax import RunningSoftmax, exact_logits, repair
from gausslens._kernels.tiles import ImageTile, Queries


def test_fast_maxima_far_above_the_true_ones_do_not_take_all_weights_away():
    images = torch.randint(0, 256, (64, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    x = images[:3] / 127.5 - 1 + 0.001
    queries = Queries(x, torch.full((3,), 0.002), torch.zeros(12), torch.tensor(12.0).sqrt())
    tile = ImageTile(images, torch.float32)
    exact, top = exact_logits(queries, tile)
    assert queries.constants.scale.min() > 0
    softmax = RunningSoftmax(x, with_mean=True)
    wrong = exact + 40.0  # what float32 products of flat images are off by at so little noise
    logits, found = repair(wrong.clone(), top + 40.0, queries, tile, softmax, None)
    assert torch.allclose(found, logits.amax(1, keepdim=True))
    softmax.add(logits, found, tile, 0, 1e-12, dense=False)
    assert bool(softmax.mean.isfinite().all())
