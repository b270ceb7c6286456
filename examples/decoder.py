"""A GPT-2-style decoder in PyTorch. Its attention is the one imported name below.

    python examples/decoder.py            # the same text and logits with either attention

The weights, rhyme.safetensors, are those of a two-layer model of 0.1 million parameters that
train_rhyme.py trained on the nursery rhyme in samples/, letter by letter.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any, Callable, Dict

import torch
from torch import nn
from torch.nn import functional

# The swap: change this import, and every block below runs on tilefold.
# from torch.nn.functional import scaled_dot_product_attention
from tilefold.sdpa import scaled_dot_product_attention

WEIGHTS = Path(__file__).parent / "rhyme.safetensors"
Attention = Callable[..., torch.Tensor]


class Block(nn.Module):
    """x + attention(norm x), then x + mlp(norm x); [B, N, width] -> [B, N, width]."""

    def __init__(self, width: int, num_heads: int, attention: Attention) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention = attention
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, width = x.shape
        heads = (batch, rows, 3, self.num_heads, width // self.num_heads)
        # [B, N, 3, H, D] seen as three [B, H, N, D]: no copies.
        q, k, v = self.qkv(self.norm_1(x)).view(heads).permute(2, 0, 3, 1, 4)
        o = self.attention(q, k, v, is_causal=True)
        x = x + self.project(o.transpose(1, 2).reshape(batch, rows, width))
        return x + self.contract(functional.gelu(self.expand(self.norm_2(x)), approximate="tanh"))


class Decoder(nn.Module):
    """Letters [B, N] (indices into `alphabet`) -> logits of the next letter [B, N, letters]."""

    def __init__(
        self,
        alphabet: str,
        width: int,
        num_heads: int,
        num_layers: int,
        context: int,
        attention: Attention = scaled_dot_product_attention,
    ) -> None:
        super().__init__()
        self.alphabet = alphabet
        self.context = context
        self.letters = nn.Embedding(len(alphabet), width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, num_heads, attention) for _ in range(num_layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(letters.shape[1], device=letters.device)
        x = self.letters(letters) + self.places(rows)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.letters.weight.T

    def encode(self, text: str) -> torch.Tensor:
        indices = [self.alphabet.index(letter) for letter in text]
        return torch.tensor([indices], device=self.letters.weight.device)

    @torch.inference_mode()
    def complete(self, text: str, num_letters: int) -> str:
        """The likeliest letters after `text`, one at a time."""
        letters = self.encode(text)
        for _ in range(num_letters):
            following = self(letters[:, -self.context :])[:, -1].argmax(-1, keepdim=True)
            letters = torch.cat([letters, following], 1)
        return "".join(self.alphabet[i] for i in letters[0])


def save(path: Path, tensors: Dict[str, torch.Tensor], metadata: Dict[str, str]) -> None:
    """Writes float16 tensors as safetensors: a JSON header and raw bytes."""
    header: Dict[str, Any] = {"__metadata__": metadata}
    data = b""
    for name, tensor in tensors.items():
        raw = tensor.detach().to(torch.float16).contiguous().numpy().tobytes()
        header[name] = {
            "dtype": "F16",
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def load(path: Path = WEIGHTS, attention: Attention = scaled_dot_product_attention) -> Decoder:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    metadata = header.pop("__metadata__")
    model = Decoder(
        metadata["alphabet"],
        int(metadata["width"]),
        int(metadata["num_heads"]),
        int(metadata["num_layers"]),
        int(metadata["context"]),
        attention,
    )
    state = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = torch.frombuffer(bytearray(raw[begin:end]), dtype=torch.float16)
        state[name] = values.view(entry["shape"]).float()
    model.load_state_dict(state)
    return model.eval()


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ours = load().to(device)
    theirs = load(attention=functional.scaled_dot_product_attention).to(device)
    prompt = "This is the cat,\n"
    letters = ours.encode(prompt)
    with torch.inference_mode():
        difference = (ours(letters) - theirs(letters)).abs().max().item()
    assert ours.blocks[0].attention is not theirs.blocks[0].attention
    assert difference < 1e-4, difference
    text = ours.complete(prompt, 160)
    assert text == theirs.complete(prompt, 160)
    print(text)
    print(f"\nlargest difference of a logit from PyTorch's attention: {difference:.1e} ({device})")
    assert math.isfinite(difference)


if __name__ == "__main__":
    main()
