"""The PyTorch example: the same logits and text whichever attention is imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"
if not (EXAMPLES / "rhyme.safetensors").exists():
    pytest.skip("the examples are not beside the tests", allow_module_level=True)
sys.path.insert(0, str(EXAMPLES))

import decoder  # noqa: E402


def test_the_swap_changes_no_logit_beyond_rounding() -> None:
    ours = decoder.load()
    theirs = decoder.load(attention=torch.nn.functional.scaled_dot_product_attention)
    letters = ours.encode("This is the maiden all forlorn,\nThat milked")
    with torch.inference_mode():
        torch.testing.assert_close(ours(letters), theirs(letters), atol=1e-4, rtol=1e-4)


def test_the_model_knows_its_rhyme() -> None:
    text = decoder.load().complete("This is the rat,\n", 57)
    assert text == "This is the rat,\nThat ate the malt\nThat lay in the house that Jack built.\n"


def test_training_still_works_through_the_fallback() -> None:
    from tilefold import sdpa

    model = decoder.load()
    with pytest.warns(sdpa.FallbackWarning):
        sdpa._warned.clear()
        model(model.encode("This")).sum().backward()
    assert model.blocks[0].qkv.weight.grad is not None
