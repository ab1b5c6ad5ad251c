"""Limit how much runs at a time, and refuse requests that could never run."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, fields

from inferno.engine.kv.block_manager import BlockManager
from inferno.errors import InvalidRequest, NeverFits
from inferno.requests import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds that the scheduler keeps to; InvalidRequest if one is below 1.

    max_num_seqs            sequences that run at a time.
    max_num_batched_tokens  tokens computed in a step.
    max_model_len           tokens of a sequence, prompt and output.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise InvalidRequest(
                    f"{field.name} must be at least 1, not {value}", param=field.name
                )

    def max_length(self, request: Request, blocks: BlockManager) -> int:
        """Count the tokens that a sequence of the request may have, prompt and output.

        A request without max_tokens gets what the context and the block pool allow.
        """
        num_prompt, max_tokens = len(request.prompt_token_ids), request.params.max_tokens
        if max_tokens is None:
            # The last token of an output is never computed: nothing comes after it.
            max_tokens = max(1, self._most_computed(blocks) + 1 - num_prompt)
        return min(num_prompt + max_tokens, self.max_model_len)

    def _most_computed(self, blocks: BlockManager) -> int:
        """Count the tokens of one sequence whose keys and values fit into the whole pool."""

        def num_peak_blocks(num_tokens: int) -> int:
            return blocks.num_peak_blocks(num_tokens, self.max_num_batched_tokens)

        lengths = range(1, self.max_model_len + 1)
        return bisect_right(lengths, blocks.pool.num_blocks, key=num_peak_blocks)

    def check(self, request: Request, blocks: BlockManager) -> None:
        """Raise InvalidRequest for an empty prompt, NeverFits for a request that can't ever fit."""
        num_prompt = len(request.prompt_token_ids)
        max_tokens = request.params.max_tokens
        if not num_prompt:
            raise InvalidRequest("the prompt is empty: give at least one token", param="prompt")
        if num_prompt + (max_tokens != 0) > self.max_model_len:
            raise NeverFits(
                f"the prompt has {num_prompt} tokens and leaves no room for output: prompt and "
                f"output have {self.max_model_len} at most; shorten the prompt",
                param="prompt",
            )
        num_computed = max(num_prompt, self.max_length(request, blocks) - 1)
        num_needed = blocks.num_peak_blocks(num_computed, self.max_num_batched_tokens)
        if num_needed > blocks.pool.num_blocks:
            most = 1 if max_tokens is None else max_tokens  # without, the pool decides
            raise NeverFits(
                f"{num_prompt} tokens of prompt with max_tokens={most} need {num_needed} blocks of "
                f"the KV cache, which has {blocks.pool.num_blocks}: give fewer max_tokens, shorten "
                "the prompt or raise --num-blocks",
                param="max_tokens",
            )
