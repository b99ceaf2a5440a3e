"""A model's first weights: the same bits on every machine for a given seed.

torch's own initialisers draw from vectorised code whose last bits depend on the processor.
Here a weight is the sum of the four 16-bit parts of one 64-bit word of Philox, a
counter-based generator of integers: nearly normal, cut at 3.46 standard deviations, and
made of integer sums and one exactly rounded product, so no library or thread count can
change it. Each parameter has its own stream, keyed by seed and name.
"""

import hashlib
import math

import numpy as np
import torch
from torch import Tensor, nn

BLOCK = 1 << 16
PAIRS, LOW = np.uint64(0x0000FFFF_0000FFFF), np.uint64(0xFFFFFFFF)
SIXTEEN, THIRTY_TWO = np.uint64(16), np.uint64(32)
# Of the sum of four independent uniform integers in [0, 65535].
MEAN = 2 * 65535
DEVIATION = math.sqrt(4 * (65536**2 - 1) / 12)


def stream(seed: int, name: str) -> np.random.Philox:
    digest = hashlib.sha256(f"folkmoot/initial/{seed}/{name}".encode()).digest()
    return np.random.Philox(key=np.frombuffer(digest[:16], dtype="<u8"))


def fill(weight: Tensor, std: float, generator: np.random.Philox) -> None:
    """Fill a CPU or device tensor in place, a block at a time."""
    flat = weight.data.view(-1)
    scale = np.float64(std / DEVIATION)
    for start in range(0, flat.numel(), BLOCK):
        count = min(BLOCK, flat.numel() - start)
        words = generator.random_raw(count)
        pairs = (words & PAIRS) + ((words >> SIXTEEN) & PAIRS)
        total = (pairs & LOW) + (pairs >> THIRTY_TWO)
        values = ((total.astype(np.float64) - MEAN) * scale).astype(np.float32)
        flat[start : start + count].copy_(torch.from_numpy(values))


@torch.no_grad()
def initialise(model: nn.Module, seed: int, std: float = 0.02, layers: int = 0) -> None:
    """Give every matrix its seeded values; leave constants (norm weights, biases) as built.

    `layers` > 0 scales the projections that write into the residual stream by
    1/sqrt(2 · layers), as GPT-2 does, so that its variance does not grow with depth.
    """
    for name, weight in model.named_parameters():
        if weight.ndim < 2 and bool((weight == weight.flatten()[0]).all()):
            continue
        residual = layers and name.endswith(("o_proj.weight", "down_proj.weight"))
        fill(weight, std / math.sqrt(2 * layers) if residual else std, stream(seed, name))
