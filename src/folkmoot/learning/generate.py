"""Text from a model, one token at a time."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from folkmoot.learning.data.tokenizer import Tokenizer
from folkmoot.learning.models import logits

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""How the last bytes of a character that is not yet whole decode."""


@torch.no_grad()
def tokens(
    model: nn.Module,
    prompt: Sequence[int],
    count: int,
    *,
    temperature: float = 0.8,
    top_k: int = 0,
    seed: int = 0,
) -> Iterator[int]:
    """Up to `count` tokens after the prompt. Temperature 0 always takes the likeliest.

    Each looks at as many of the tokens before it as the model takes.
    """
    if not prompt:
        raise ValueError("a prompt needs at least one token")
    window = _context_of(model)
    device = next(model.parameters()).device
    dice = torch.Generator().manual_seed(seed)
    seen = list(prompt)
    for _ in range(count):
        last_T = torch.tensor([seen[-window:]], device=device)
        seen.append(_choose(logits(model, last_T)[0, -1].float().cpu(), temperature, top_k, dice))
        yield seen[-1]


def text(using: Tokenizer, stream: Iterator[int]) -> Iterator[str]:
    """The stream as pieces of text, each held back until its characters are whole."""
    made: list[int] = []
    shown = ""
    for token in stream:
        if token == using.end:
            break
        made.append(token)
        whole = using.decode(made).rstrip(UNFINISHED)
        yield whole[len(shown) :]
        shown = whole
    yield using.decode(made)[len(shown) :]


def _choose(logits_V: Tensor, temperature: float, top_k: int, dice: torch.Generator) -> int:
    if temperature <= 0:
        return int(logits_V.argmax())
    if 0 < top_k < len(logits_V):
        cut = logits_V.topk(top_k).values[-1]
        logits_V = logits_V.masked_fill(logits_V < cut, -torch.inf)
    return int(torch.multinomial((logits_V / temperature).softmax(-1), 1, generator=dice))


def _context_of(model: nn.Module) -> int:
    config = model.config
    for name in ("context", "max_position_embeddings", "n_positions"):
        if isinstance(found := getattr(config, name, None), int):
            return found
    return 1024
