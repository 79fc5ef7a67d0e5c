"""A denoiser that caches its answers, since several measures call one denoiser with the same inputs.

Inputs are recognised by a hash of their content. On a GPU the hash is computed there, without copying the input: of rows of
integers b, Σᵣ vᵣ Σᵢ wᵢbᵣᵢ mod 2⁶⁴ for two sets of random odd numbers v and w, 128 bits.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from .._typing import Int
from ..noise import generator

_BYTES = 1 << 29
_HASHES = 2
_ROW = 1 << 14
_ROWS_AT_A_TIME = 1 << 8
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}
"""The integer types that numbers of so many bytes are read as."""


class CachedDenoiser(nn.Module):
    """A denoiser, a function of its arguments alone, with a cache of its last answers; it has no derivatives."""

    def __init__(self, denoiser: nn.Module) -> None:
        super().__init__()
        self.denoiser = denoiser
        self._answers: OrderedDict[tuple[object, ...], Tensor] = OrderedDict()
        self._bytes = 0

    def forward(self, x: Tensor, sigma: Tensor, *labels: Tensor) -> Tensor:
        """The denoiser's answer, computed or from the cache."""
        key = (tuple(x.shape), x.dtype, *(fingerprint(part) for part in (x, sigma, *labels)))
        if key not in self._answers:
            answer: Tensor = self.denoiser(x, sigma, *labels)
            self._answers[key] = answer.detach()
            self._bytes += answer.nbytes
        self._answers.move_to_end(key)
        while self._bytes > _BYTES and len(self._answers) > 1:
            self._bytes -= self._answers.popitem(last=False)[1].nbytes
        return self._answers[key].clone()


def fingerprint(tensor: Tensor) -> Hashable:
    """A hash of a tensor's content."""
    numbers = tensor.detach().contiguous().flatten()
    if numbers.device.type == "cpu":
        return hashlib.sha256(numbers.view(torch.uint8).numpy().data).digest()
    return tuple(multilinear_hash(numbers).tolist())


def multilinear_hash(numbers: Tensor) -> Int[Tensor, "2"]:
    """The two sums above, of a vector of numbers of any type, on its device."""
    words = numbers.view(_WORDS[numbers.element_size()])
    rows = pad(words, (0, -len(words) % _ROW)).reshape(-1, _ROW)
    weights = _odd_numbers(_ROW, words.device)
    sums = [(part.long() * weights[:, None]).sum(2) for part in rows.split(_ROWS_AT_A_TIME)]
    return (torch.cat(sums, 1) * _odd_numbers(len(rows), words.device)).sum(1)


@lru_cache(maxsize=8)
def _odd_numbers(count: int, device: torch.device) -> Int[Tensor, "2 n"]:
    random = generator(0, f"{count} odd numbers")
    return (torch.randint(-(1 << 62), 1 << 62, (_HASHES, count), generator=random) * 2 + 1).to(device)
