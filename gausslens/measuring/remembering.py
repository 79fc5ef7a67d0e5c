"""A denoiser that remembers its answers: several measures ask one denoiser the same questions."""

import hashlib
from collections import OrderedDict

import torch
from torch import Tensor, nn

_BYTES = 1 << 29


class Remembering(nn.Module):
    """D(x, σ) that computes an answer once, as long as not too many others come between; it takes no derivatives.

    Args:
        denoiser: the denoiser, which must be a function of its arguments alone.
    """

    def __init__(self, denoiser: nn.Module) -> None:
        super().__init__()
        self.denoiser = denoiser
        self._answers: OrderedDict[bytes, Tensor] = OrderedDict()
        self._bytes = 0

    def forward(self, x: Tensor, sigma: Tensor, *labels: Tensor) -> Tensor:
        """The denoiser's answer, computed or remembered."""
        question = hashlib.sha256(f"{tuple(x.shape)} {x.dtype} {len(labels)}".encode())
        for part in (x, sigma, *labels):
            question.update(part.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        key = question.digest()
        if key not in self._answers:
            answer: Tensor = self.denoiser(x, sigma, *labels)
            self._answers[key] = answer.cpu()
            self._bytes += answer.nbytes
        self._answers.move_to_end(key)
        while self._bytes > _BYTES and len(self._answers) > 1:
            self._bytes -= self._answers.popitem(last=False)[1].nbytes
        return self._answers[key].to(x.device)
