"""Trains the little decoder of decoder.py on the nursery rhyme in samples/ and writes its weights.

    python examples/train_rhyme.py --steps 800

Letter by letter, on random windows of the text, with PyTorch's attention (tilefold has no backward
pass yet) on the CPU: a few minutes. The seed is fixed.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from decoder import WEIGHTS, Decoder, save
from torch.nn import functional

TEXT = Path(__file__).parents[1] / "samples" / "house_that_jack_built.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8").strip() + "\n"
    alphabet = "".join(sorted(set(text)))
    settings = {"width": 64, "num_heads": 2, "num_layers": 2, "context": 256}
    torch.manual_seed(1)
    torch.set_num_threads(1)  # the products are too small to share
    attention = functional.scaled_dot_product_attention
    model = Decoder(alphabet, **settings, attention=attention)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.05)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    letters = model.encode(text)[0]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    rows = settings["context"]
    for step in range(options.steps):
        for group in optimizer.param_groups:
            warm = min(1.0, (step + 1) / 50)
            group["lr"] = 3e-3 * warm * 0.5 * (1 + math.cos(math.pi * step / options.steps)) + 1e-5
        starts = torch.randint(0, len(letters) - rows - 1, (6,)).tolist()
        windows = torch.stack([letters[start : start + rows + 1] for start in starts])
        logits = model(windows[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == options.steps - 1:
            print(f"step {step}: {loss.item():.4f} nats a letter", flush=True)
    metadata = {"alphabet": alphabet, **{name: str(value) for name, value in settings.items()}}
    save(options.out, model.state_dict(), metadata)
    print(f"{options.out}: {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
