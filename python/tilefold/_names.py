"""Arguments in error messages, by the names that the function called gives them.

Each layer speaks of its own arguments: the C library of `o` and `options.window_left`, what lies
below tilefold.attention of `out` and `window[0]`, flash_attn of `window_size`. A function whose names
differ from those of the layer below has a table of them, and sends an error that passes through it
on with its own. Nothing is looked at unless there is an error.
"""

from __future__ import annotations

from typing import Mapping

OF_THE_C_LIBRARY = {
    "o": "out",
    "lse": "out[1] (lse)",
    "options.causal": "causal",
    "options.scale": "scale",
    "options.window_left": "window[0] (left)",
    "options.window_right": "window[1] (right)",
    "options.window_align": "window_align",
    "options.empty_row_lse": "empty_row_lse",
    "options.num_threads": "num_threads",
    "options.kernel": "kernel=",
    "tilefold_get_kernel_info()": "tilefold.kernels()",
}
"""The C library's names -> those of tilefold.attention."""

_BEFORE_A_NAME = ("", "of", "but", "and", "pass", "(from")


def spelled(sentence: str, names: Mapping[str, str]) -> str:
    """The sentence with its arguments by their names in the table.

    A sentence names an argument where a clause begins and after a few words, never inside quotes,
    which hold what the caller gave. Elsewhere a word that reads like a name is none.
    """
    words = []
    before, in_quotes = "", False
    for word in sentence.split(" "):
        name = word.rstrip(":;,")
        # (from options.kernel), k[0], k.detach()
        for inside in (name.rstrip(")"), name.partition("[")[0], name.partition(".")[0]):
            if name not in names:
                name = inside
        if name in names and not in_quotes and before in _BEFORE_A_NAME:
            words.append(names[name] + word[len(name) :])
        else:
            words.append(word)
        before = "" if word[-1:] in (":", ";", ",") else word
        in_quotes = in_quotes != (word.count("'") % 2 == 1)
    spoken = " ".join(words)
    for name in names.values():  # two arguments of one layer may be one of another
        for between in (", ", " and "):
            spoken = spoken.replace(f"{name}{between}{name}", name)
    return spoken


def renamed(error: Exception, names: Mapping[str, str]) -> Exception:
    """The error to raise in place of one from the layer below."""
    kind = type(error)
    if kind not in (ValueError, TypeError, NotImplementedError, RuntimeError):
        return error  # not of the library's making
    return kind(spelled(str(error), names))
