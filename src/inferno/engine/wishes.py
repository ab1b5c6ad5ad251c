"""A request's wishes about its logits, as tensors that are built once and not in every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.engine.bad_words import BadWords
from inferno.engine.token_list import token_list
from inferno.requests import SamplingParams


@dataclass(frozen=True, slots=True, eq=False)
class Wishes:
    """For all samples and steps of a request; a token stands once in each list.

    Ids that the vocabulary doesn't have are left out.

    bias_ids_N, bias_N  tokens, and what is added to their logits.
    most_V          what a logit may be at most: infinity, or minus that where a token isn't
                    allowed; None allows all.
    banned_ids_N    tokens that are bad words by themselves.
    ending_ids_N    tokens that would end the output, if there is a min_tokens.
    bad_words       those of several tokens.
    """

    bias_ids_N: Tensor
    bias_N: Tensor
    most_V: Tensor | None
    banned_ids_N: Tensor
    ending_ids_N: Tensor
    bad_words: BadWords | None


def build_wishes(
    params: SamplingParams,
    eos_token_ids: frozenset[int],
    bad_words_ids: Sequence[tuple[int, ...]],
    vocab_size: int,
    device: torch.device,
) -> Wishes:
    """Build the wishes of a request, on the device of its logits."""
    endings = (*eos_token_ids, *params.stop_token_ids) if params.min_tokens else ()
    words = [word for word in bad_words_ids if len(word) > 1]
    bias_ids_N = token_list(params.logit_bias, vocab_size, device)
    return Wishes(
        bias_ids_N=bias_ids_N,
        bias_N=_values(params.logit_bias, bias_ids_N),
        most_V=_ceiling(params.allowed_token_ids, vocab_size, device),
        banned_ids_N=token_list(
            [word[0] for word in bad_words_ids if len(word) == 1], vocab_size, device
        ),
        ending_ids_N=token_list(endings, vocab_size, device),
        bad_words=BadWords(words, vocab_size, device) if words else None,
    )


def _values(biases: Mapping[int, float], ids_N: Tensor) -> Tensor:
    values = [biases[token_id] for token_id in ids_N.tolist()]
    return torch.tensor(values, dtype=torch.float32, device=ids_N.device)


def _ceiling(
    allowed_ids: Sequence[int] | None, vocab_size: int, device: torch.device
) -> Tensor | None:
    if allowed_ids is None:
        return None
    most_V = torch.full((vocab_size,), float("-inf"), device=device)
    most_V[token_list(allowed_ids, vocab_size, device)] = float("inf")
    return most_V
