"""A small GPT that can be read in one sitting.

It is a Llama: RMSNorm before each block, rotary positions, grouped-query attention, SwiGLU,
no biases. Its parameters carry the names `transformers.LlamaForCausalLM` gives them, so a
saved state dict *is* a Hugging Face checkpoint and both produce the same logits.

Letters in names: B batch, T time, D width, H heads, K key/value heads, E width of a head,
F feed-forward width, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from folkmoot.core.model_config import GptConfig


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x_BTD: Tensor) -> Tensor:
        return F.rms_norm(x_BTD, self.weight.shape, self.weight, self.eps)


def rotary_angles(length: int, head_width: int, theta: float, device: torch.device) -> Tensor:
    """Angle of each position and channel pair; both halves of a head turn by the same."""
    channel = torch.arange(0, head_width, 2, dtype=torch.float32, device=device)
    frequency = 1.0 / (theta ** (channel / head_width))
    angle_TE = torch.outer(torch.arange(length, dtype=torch.float32, device=device), frequency)
    return torch.cat((angle_TE, angle_TE), dim=-1)


def rotate(x_BHTE: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
    left, right = x_BHTE.chunk(2, dim=-1)
    return x_BHTE * cos_TE + torch.cat((-right, left), dim=-1) * sin_TE


class Attention(nn.Module):
    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.key_value_heads
        self.head_width = config.width // config.heads
        kv_width = self.kv_heads * self.head_width
        self.q_proj = nn.Linear(config.width, config.width, bias=False)
        self.k_proj = nn.Linear(config.width, kv_width, bias=False)
        self.v_proj = nn.Linear(config.width, kv_width, bias=False)
        self.o_proj = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x_BTD: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
        B, T, D = x_BTD.shape
        q_BHTE = self.q_proj(x_BTD).view(B, T, self.heads, self.head_width).transpose(1, 2)
        k_BKTE = self.k_proj(x_BTD).view(B, T, self.kv_heads, self.head_width).transpose(1, 2)
        v_BKTE = self.v_proj(x_BTD).view(B, T, self.kv_heads, self.head_width).transpose(1, 2)
        q_BHTE, k_BKTE = rotate(q_BHTE, cos_TE, sin_TE), rotate(k_BKTE, cos_TE, sin_TE)
        y_BHTE = F.scaled_dot_product_attention(
            q_BHTE, k_BKTE, v_BKTE, is_causal=True, enable_gqa=self.kv_heads != self.heads
        )
        return self.o_proj(y_BHTE.transpose(1, 2).reshape(B, T, D))


class FeedForward(nn.Module):
    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.feed_forward_width, bias=False)
        self.up_proj = nn.Linear(config.width, config.feed_forward_width, bias=False)
        self.down_proj = nn.Linear(config.feed_forward_width, config.width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x_BTD)) * self.up_proj(x_BTD))


class TransformerBlock(nn.Module):
    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = FeedForward(config)
        self.input_layernorm = RMSNorm(config.width, config.norm_eps)
        self.post_attention_layernorm = RMSNorm(config.width, config.norm_eps)

    def forward(self, x_BTD: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
        x_BTD = x_BTD + self.self_attn(self.input_layernorm(x_BTD), cos_TE, sin_TE)
        return x_BTD + self.mlp(self.post_attention_layernorm(x_BTD))


class Decoder(nn.Module):
    """Everything below the output head; Hugging Face calls it `model`."""

    cos_TE: Tensor
    sin_TE: Tensor

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.width)
        self.layers = nn.ModuleList(TransformerBlock(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        head_width = config.width // config.heads
        angle_TE = rotary_angles(config.context, head_width, config.rope_theta, torch.device("cpu"))
        self.register_buffer("cos_TE", angle_TE.cos(), persistent=False)
        self.register_buffer("sin_TE", angle_TE.sin(), persistent=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        T = tokens_BT.shape[1]
        x_BTD = self.embed_tokens(tokens_BT)
        cos_TE, sin_TE = self.cos_TE[:T].to(x_BTD.dtype), self.sin_TE[:T].to(x_BTD.dtype)
        for block in self.layers:
            x_BTD = block(x_BTD, cos_TE, sin_TE)
        return self.norm(x_BTD)


class GPT(nn.Module):
    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        if not config.tie_embeddings:
            self.lm_head = nn.Linear(config.width, config.vocab_size, bias=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        if tokens_BT.shape[1] > self.config.context:
            raise ValueError(
                f"a sequence of {tokens_BT.shape[1]} tokens does not fit the model's context of"
                f" {self.config.context}; shorten the sequence or build a model with more context"
            )
        x_BTD = self.model(tokens_BT)
        if self.config.tie_embeddings:
            return F.linear(x_BTD, self.model.embed_tokens.weight)
        return self.lm_head(x_BTD)
