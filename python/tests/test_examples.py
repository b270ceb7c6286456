"""The PyTorch example: the same logits and text whichever attention is imported."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"
if not (EXAMPLES / "rhyme.safetensors").exists():
    pytest.skip("the examples are not beside the tests", allow_module_level=True)
sys.path.insert(0, str(EXAMPLES))

import decoder  # noqa: E402
from test_torch import DEVICES  # noqa: E402


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.float16, 5e-2)], ids=str)
def test_the_swap_changes_no_logit_beyond_rounding(device: str, dtype: Any, tolerance: float) -> None:
    pytorchs = torch.nn.functional.scaled_dot_product_attention
    ours = decoder.load().to(device, dtype)
    theirs = decoder.load(attention=pytorchs).to(device, dtype)
    letters = ours.encode("This is the maiden all forlorn,\nThat milked")
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("error")  # no fallback
        torch.testing.assert_close(ours(letters), theirs(letters), atol=tolerance, rtol=tolerance)


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
