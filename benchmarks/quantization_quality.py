"""What do int8 and int4 cost in quality, beside llama.cpp's Q8_0 and Q4_0? Prints a table.

    python benchmarks/quantization_quality.py [MODEL ...] [--tokens N] [--kv-dtype TYPE]

MODEL is `demo` or the folder of a dense model. Ours is the engine as it runs. The peer's formats
are emulated in float32 with transformers: blocks of 32 with a float16 scale, activations in Q8_0,
the embedding and the head in Q8_0. (llama.cpp takes Q6_K for those two where the width is a
multiple of 256, and rounds no weight whose width is none of 32.) On `demo` the divergence comes
within 1 % of that of llama.cpp's own logits.

The text is demo's corpus, held-out documents; of other models, what they say at temperature 1.
Divergence is KL(float32 || quantized), the mean over all tokens; its ratio is to the peer's.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from inferno import LLM, SamplingParams
from inferno.hub.find import find_model_folder

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from demo_corpus import documents

BLOCK = 32
MAX_DOCUMENT = 256  # tokens
BITS = {"Q8_0": 8.5, "Q4_0": 4.5}
PEERS = {"int8": "Q8_0", "int4": "Q4_0"}

Documents = list[list[int]]
Logits = Callable[[list[int]], Tensor]


@dataclass(frozen=True)
class Quality:
    """Mean KL divergence, how often the likeliest token is that of float32, perplexity."""

    bits: float
    divergence: float
    agreement: float
    perplexity: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["demo"])
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--kv-dtype", default="auto", help="of our keys and values")
    args = parser.parse_args()
    columns = ("model", "type", "bits", "KL", "ratio", "same", "perplexity")
    print("{:<20}{:<8}{:>7}{:>11}{:>8}{:>9}{:>12}".format(*columns))
    for name in args.models:
        print_model(name, args.tokens, args.kv_dtype)


@torch.inference_mode()
def print_model(name: str, num_tokens: int, kv_dtype: str) -> None:
    folder = find_model_folder(name)
    texts = make_texts(name, folder, num_tokens)
    model = load(folder)
    truth = [logits_of(model)(ids).log_softmax(-1) for ids in texts]
    for ours, theirs in PEERS.items():
        peer = quality(texts, truth, logits_of(emulated(folder, theirs)), bits_of(model, theirs))
        with LLM(folder, quantize=ours, kv_dtype=kv_dtype) as engine:
            bits = engine.footprint.weights_bytes * 8 / model.num_parameters()
            own = quality(texts, truth, engine.logits, bits)
        print_row(folder.name, theirs, peer, 1.0)
        print_row(folder.name, ours, own, own.divergence / peer.divergence)


def print_row(model: str, kind: str, row: Quality, ratio: float) -> None:
    print(
        f"{model:<20}{kind:<8}{row.bits:>7.2f}{row.divergence:>11.6f}{ratio:>8.3f}"
        f"{row.agreement:>9.2%}{row.perplexity:>12.4f}"
    )


def quality(texts: Documents, truth: list[Tensor], logits: Logits, bits: float) -> Quality:
    divergences, agreements, losses = [], [], []
    for ids, true_TV in zip(texts, truth, strict=True):
        got_TV = logits(ids).log_softmax(-1)
        divergences.append((true_TV.exp() * (true_TV - got_TV)).double().sum(-1))
        agreements.append(true_TV.argmax(-1) == got_TV.argmax(-1))
        losses.append(-got_TV[:-1].gather(1, torch.tensor(ids[1:])[:, None]))
    return Quality(
        bits=bits,
        divergence=float(torch.cat(divergences).mean()),
        agreement=float(torch.cat(agreements).double().mean()),
        perplexity=math.exp(float(torch.cat(losses).mean())),
    )


def make_texts(name: str, folder: Path, num_tokens: int) -> Documents:
    """Documents of two tokens and more, at least that many tokens in all."""
    texts: Documents = []
    for ids in corpus(folder) if name == "demo" else said_by(folder):
        texts.append(ids)
        if sum(map(len, texts)) >= num_tokens:
            break
    return texts


def corpus(folder: Path) -> Iterator[list[int]]:
    """The beginnings of documents from demo's corpus."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for document in documents(random.Random(0), held_out=True):
        text = "".join(piece.text for piece in document)
        yield tokenizer.encode(text, add_special_tokens=False).ids[:MAX_DOCUMENT]


def said_by(folder: Path) -> Iterator[list[int]]:
    """What the model says by itself."""
    with LLM(folder, dtype="float32") as llm:
        start = llm.tokenizer.encode("") or llm.tokenizer.encode("The")
        for seed in itertools.count():
            num_new = MAX_DOCUMENT - len(start)
            params = SamplingParams(
                temperature=1.0, top_p=1.0, max_tokens=num_new, seed=seed, ignore_eos=True
            )
            [said] = llm.generate([start], params)
            yield [*start, *said.token_ids]


def load(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits_of(model: PreTrainedModel) -> Logits:
    return lambda ids: model(torch.tensor([ids])).logits[0]


def emulated(folder: Path, kind: str) -> PreTrainedModel:
    """The model as llama.cpp runs it in that format: rounded weights, rounded activations."""
    model = load(folder)
    rounded = {"Q8_0": rounded_q8_0, "Q4_0": rounded_q4_0}[kind]
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            parameter.copy_(rounded_q8_0(parameter) if is_wide(name) else rounded(parameter))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs: rounded_q8_0(inputs[0]))
    return model


def is_wide(name: str) -> bool:
    """Whether it is the embedding or the head."""
    return "embed_tokens" in name or "lm_head" in name


def rounded_q8_0(values: Tensor) -> Tensor:
    blocks = in_blocks(values)
    scales = blocks.abs().amax(-1, keepdim=True) / 127
    codes = (blocks * inverse(scales)).round()
    return joined(codes * scales.half().float(), values)


def rounded_q4_0(values: Tensor) -> Tensor:
    """Codes 0 to 15 stand for -8 to 7; the value of largest magnitude becomes -8."""
    blocks = in_blocks(values)
    peaks = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    scales = peaks / -8
    codes = (blocks * inverse(scales) + 8.5).trunc().clamp(max=15) - 8
    return joined(codes * scales.half().float(), values)


def inverse(scales: Tensor) -> Tensor:
    return torch.where(scales == 0, 0, 1 / scales)


def in_blocks(values: Tensor) -> Tensor:
    """The last axis in blocks; llama.cpp refuses a width that would have to be filled up."""
    *leading, width = values.shape
    return F.pad(values, (0, -width % BLOCK)).view(*leading, -1, BLOCK)


def joined(blocks: Tensor, like: Tensor) -> Tensor:
    return blocks.flatten(-2)[..., : like.shape[-1]]


def bits_of(model: PreTrainedModel, kind: str) -> float:
    """Bits a weight in that format; vectors are float32."""
    bits = 0.0
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            bits += in_blocks(parameter).numel() * BITS["Q8_0" if is_wide(name) else kind]
        else:
            bits += parameter.numel() * 32
    return bits / int(model.num_parameters())


if __name__ == "__main__":
    main()
