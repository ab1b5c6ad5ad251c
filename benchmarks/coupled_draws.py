"""How often do target and draft draw the same token from the same random numbers? Prints tables.

    python benchmarks/coupled_draws.py [TARGET DRAFT] [--positions N] [--k N]

The target continues prompts, chats and beginnings of stories from demo's corpus, and both models
give their logits at each position of what it wrote. How likely both draw the same token there is
computed from the two distributions, not sampled: once for each way to turn random numbers into a
token. `min(p, q)` is what no way can exceed, and what rejection sampling accepts
(arXiv:2211.17192).

Tokens a step: k proposals are computed at once on those texts, the next step begins after the last
token that it gave, and the tokens are divided by the expected number of steps.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inferno import LLM, SamplingParams

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from demo_corpus import BOS, documents
from demo_stories import tell

MAX_NEW = 128
NUM_AT_ONCE = 32  # texts
BLOCK = 64  # tokens that race as one at first, of a small vocabulary
CHUNK = 256  # positions at a time
NUM_NEAR = 16  # of the draft's tokens that are looked at
NEARNESS = 0.2  # how far from a number, about, its token may lie; found by trying
NUM_NUMBERS = 256

Reals = NDArray[np.float64]
Ids = NDArray[np.int64]
# From both models' probabilities, [N, V] each, how likely both draw the token: [N, V].
Coupling = Callable[[Reals, Reals], Reals]


@dataclass(frozen=True)
class Setting:
    """The way in which both models draw."""

    temperature: float
    top_k: int = 0
    top_p: float = 1.0

    @property
    def words(self) -> str:
        top_k = f", top-k {self.top_k}" if self.top_k else ""
        top_p = f", top-p {self.top_p}" if self.top_p < 1 else ""
        return f"temperature {self.temperature}{top_k}{top_p}"


SETTINGS = (Setting(1.0), Setting(0.7), Setting(1.0, 40, 0.9))


@dataclass(frozen=True)
class Written:
    """A text that the target wrote: its new tokens, and both models' logits for each of them."""

    token_ids: Ids
    target_NV: NDArray[np.float32]
    draft_NV: NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["demo", "demo-draft"])
    parser.add_argument("--positions", type=int, default=4096)
    parser.add_argument("--k", type=int, default=4)
    args = parser.parse_args()
    target, draft = args.models
    with LLM(target) as target_llm, LLM(draft) as draft_llm:
        for kind, prompts in (("chats", chats), ("stories", stories)):
            for setting in SETTINGS:
                drawn = prompts(random.Random(0))
                texts = list(write(target_llm, draft_llm, drawn, setting, args.positions))
                print_table(kind, setting, texts, args.k)


def print_table(kind: str, setting: Setting, texts: Sequence[Written], k: int) -> None:
    num_positions = sum(len(text.token_ids) for text in texts)
    print(f"\n{kind}, {setting.words}: {num_positions} positions of {len(texts)} texts")
    print(f"{'coupling':<32}{'same':>8}{'of best':>9}{'tokens a step':>15}")
    rows = {name: acceptance(texts, setting, way, k) for name, way in COUPLINGS.items()}
    best, _ = rows[BEST]
    for name, (share, tokens) in rows.items():
        print(f"{name:<32}{share:>8.2%}{share / best:>9.1%}{tokens:>15.2f}")


def acceptance(
    texts: Sequence[Written], setting: Setting, coupling: Coupling, k: int
) -> tuple[float, float]:
    """Return how likely a proposal stands, and how many tokens a step gives with k of them."""
    total, num_tokens, num_steps = 0.0, 0, 0.0
    for text in texts:
        chances = []
        for start in range(0, len(text.token_ids), CHUNK):
            chunk = slice(start, start + CHUNK)
            p_NV = probabilities(text.target_NV[chunk], setting)
            q_NV = probabilities(text.draft_NV[chunk], setting)
            both_NV = coupling(p_NV, q_NV)
            total += both_NV.sum()
            place = np.arange(len(p_NV)), text.token_ids[chunk]
            chances += (both_NV[place] / p_NV[place]).tolist()
        num_tokens += len(chances)
        num_steps += steps_for(chances, k)
    return total / num_tokens, num_tokens / num_steps


def steps_for(chances: Sequence[float], k: int) -> float:
    """Return the expected steps for a text, by how likely the proposal at each position stands."""
    begins = [1.0, *[0.0] * len(chances)]  # how likely a step begins there
    for start in range(len(chances)):
        stands = begins[start]
        for position in range(start, min(start + k + 1, len(chances))):
            is_last = position in (start + k, len(chances) - 1)
            falls = stands if is_last else stands * (1 - chances[position])
            begins[position + 1] += falls
            stands -= falls
    return sum(begins[:-1])


def probabilities(logits_NV: NDArray[np.float32], setting: Setting) -> Reals:
    """Return what tokens are drawn by: the top p of the top k, ranked by logit, then by id."""
    scaled_NV = logits_NV.astype(np.float64) / setting.temperature
    p_NV = np.exp(scaled_NV - scaled_NV.max(-1, keepdims=True))
    order_NV = np.argsort(-scaled_NV, axis=-1, kind="stable")
    ranked_NV = np.take_along_axis(p_NV, order_NV, -1)
    if setting.top_k:
        ranked_NV[:, setting.top_k :] = 0
    before_NV = ranked_NV.cumsum(-1) - ranked_NV
    ranked_NV[before_NV >= setting.top_p * ranked_NV.sum(-1, keepdims=True)] = 0
    np.put_along_axis(p_NV, order_NV, ranked_NV, -1)
    normal_NV: Reals = p_NV / p_NV.sum(-1, keepdims=True)
    return normal_NV


# Couplings


def inverse_cdf_by_id(p_NV: Reals, q_NV: Reals) -> Reals:
    """Point with one number into the tokens in the order of their ids."""
    order_NV = np.broadcast_to(np.arange(p_NV.shape[1]), p_NV.shape)
    return _overlap(_ends(p_NV, order_NV), p_NV, _ends(q_NV, order_NV), q_NV)


def inverse_cdf_by_own_rank(p_NV: Reals, q_NV: Reals) -> Reals:
    """Point with one number into the tokens as each model ranks them."""
    return _overlap(_ends(p_NV, _ranked(p_NV)), p_NV, _ends(q_NV, _ranked(q_NV)), q_NV)


def inverse_cdf_by_target_rank(p_NV: Reals, q_NV: Reals) -> Reals:
    """Point with one number into the tokens as the target ranks them, which no draft knows."""
    order_NV = _ranked(p_NV)
    return _overlap(_ends(p_NV, order_NV), p_NV, _ends(q_NV, order_NV), q_NV)


def race(p_NV: Reals, q_NV: Reals) -> Reals:
    """Draw an exponential number for each id; the first to arrive wins, at its probability's rate.

    Both pick i with probability 1 / sum_j max(p_j / p_i, q_j / q_i), in which p decides for those
    j whose p_j / q_j is at least that of i. The Gumbel-max trick is the same draw.
    """
    is_open_NV = (p_NV > 0) & (q_NV > 0)
    ratio_NV = np.where(q_NV > 0, p_NV / np.where(q_NV > 0, q_NV, 1), np.inf)
    order_NV = np.argsort(-ratio_NV, axis=-1, kind="stable")
    ranked_p_NV = np.take_along_axis(p_NV, order_NV, -1)
    ranked_q_NV = np.take_along_axis(q_NV, order_NV, -1)
    from_p_NV = _back(ranked_p_NV.cumsum(-1), order_NV)
    from_q_NV = _back(ranked_q_NV[:, ::-1].cumsum(-1)[:, ::-1] - ranked_q_NV, order_NV)
    both_NV = np.zeros_like(p_NV)
    both_NV[is_open_NV] = 1 / (
        from_p_NV[is_open_NV] / p_NV[is_open_NV] + from_q_NV[is_open_NV] / q_NV[is_open_NV]
    )
    return both_NV


def race_in_two(p_NV: Reals, q_NV: Reals) -> Reals:
    """Race blocks of ids by their sums, then the ids of the block that wins: few random numbers."""
    num_rows, width = p_NV.shape
    parts = []
    p_NBC, q_NBC = (
        np.pad(x_NV, ((0, 0), (0, -width % BLOCK))).reshape(num_rows, -1, BLOCK)
        for x_NV in (p_NV, q_NV)
    )
    p_NB, q_NB = p_NBC.sum(-1), q_NBC.sum(-1)
    both_NB = race(p_NB, q_NB)
    for block in range(p_NB.shape[1]):
        inner_NC = race(*(_normal(x_NBC[:, block]) for x_NBC in (p_NBC, q_NBC)))
        parts.append(both_NB[:, block, None] * inner_NC)
    return np.concatenate(parts, axis=1)[:, :width]


def likeliest_of_draft(p_NV: Reals, q_NV: Reals) -> Reals:
    """Draw nothing for the draft: it proposes its likeliest token."""
    return np.where(np.arange(q_NV.shape[1]) == q_NV.argmax(-1)[:, None], p_NV, 0)


def likeliest_near_by_id(p_NV: Reals, q_NV: Reals) -> Reals:
    """Have the target draw by id, and the draft propose what lies likeliest around the number."""
    return _likeliest_near(p_NV, q_NV, is_ranked=False)


def likeliest_near_by_own_rank(p_NV: Reals, q_NV: Reals) -> Reals:
    """Likewise, where tokens lie as each model ranks them."""
    return _likeliest_near(p_NV, q_NV, is_ranked=True)


def best(p_NV: Reals, q_NV: Reals) -> Reals:
    """Return what none exceeds whose draft draws by its probabilities; rejection accepts it."""
    return np.minimum(p_NV, q_NV)


BEST = "best possible: min(p, q)"
COUPLINGS: Mapping[str, Coupling] = {
    "inverse CDF by id": inverse_cdf_by_id,
    "inverse CDF by own rank": inverse_cdf_by_own_rank,
    "inverse CDF by target's rank": inverse_cdf_by_target_rank,
    "race of all ids": race,
    f"race of blocks of {BLOCK}, then ids": race_in_two,
    "draft's likeliest token": likeliest_of_draft,
    "by id, draft's likeliest nearby": likeliest_near_by_id,
    "by own rank, likeliest nearby": likeliest_near_by_own_rank,
    BEST: best,
}


def _ranked(p_NV: Reals) -> Ids:
    return np.argsort(-p_NV, axis=-1, kind="stable")


def _ends(p_NV: Reals, order_NV: Ids) -> Reals:
    """Return where each token's part of [0, 1] ends, if they lie in that order."""
    return _back(np.take_along_axis(p_NV, order_NV, -1).cumsum(-1), order_NV)


def _back(ranked_NV: Reals, order_NV: Ids) -> Reals:
    """Return values by id that were by rank."""
    values_NV = np.empty_like(ranked_NV)
    np.put_along_axis(values_NV, order_NV, ranked_NV, -1)
    return values_NV


def _overlap(p_ends_NV: Reals, p_NV: Reals, q_ends_NV: Reals, q_NV: Reals) -> Reals:
    last_NV = np.minimum(p_ends_NV, q_ends_NV)
    first_NV = np.maximum(p_ends_NV - p_NV, q_ends_NV - q_NV)
    overlap_NV: Reals = np.maximum(last_NV - first_NV, 0)
    return overlap_NV


def _likeliest_near(p_NV: Reals, q_NV: Reals, *, is_ranked: bool) -> Reals:
    """Let a number stand for those around it, as the target's tokens lie a little elsewhere.

    Each of the draft's likeliest tokens has what a logistic density around the number gives its
    part of [0, 1]; who has most is proposed. Averaged over numbers that are evenly spread.
    """
    every_NV = np.broadcast_to(np.arange(p_NV.shape[1]), p_NV.shape)
    order_NV = _ranked(p_NV) if is_ranked else every_NV
    p_ends_NV = _ends(p_NV, order_NV)
    ids_NC = _ranked(q_NV)[:, :NUM_NEAR]
    if not is_ranked:
        ids_NC = np.sort(ids_NC, axis=-1)
    q_NC = _normal(np.take_along_axis(q_NV, ids_NC, -1))
    q_ends_NC = q_NC.cumsum(-1)
    both_NV, rows = np.zeros_like(p_NV), np.arange(len(p_NV))
    for number in (np.arange(NUM_NUMBERS) + 0.5) / NUM_NUMBERS:
        near_NC = _logistic(q_ends_NC - number) - _logistic(q_ends_NC - q_NC - number)
        proposed_N = ids_NC[rows, near_NC.argmax(-1)]
        ends_N, p_N = p_ends_NV[rows, proposed_N], p_NV[rows, proposed_N]
        both_NV[rows, proposed_N] += (ends_N - p_N <= number) & (number < ends_N)
    # A number counts whole or not at all, which must not make a token likelier than it is.
    return np.minimum(both_NV / NUM_NUMBERS, p_NV)


def _logistic(distance: Reals) -> Reals:
    share: Reals = 0.5 + 0.5 * np.tanh(distance / (2 * NEARNESS))
    return share


def _normal(x_NC: Reals) -> Reals:
    """Return rows that add up to 1; rows of zeros stay."""
    total_N1 = x_NC.sum(-1, keepdims=True)
    return x_NC / np.where(total_N1 > 0, total_N1, 1)


# Texts


def chats(rng: random.Random) -> Iterator[str]:
    """Yield held-out chats up to the last answer."""
    for document in documents(rng, held_out=True):
        if len(document) > 1:
            yield "".join(piece.text for piece in document[:-1]).removeprefix(BOS)


def stories(rng: random.Random) -> Iterator[str]:
    """Yield the first words of held-out stories."""
    while True:
        story = tell(rng, is_plain=True)
        if story.is_held_out:
            yield " ".join(story.text.split(" ")[:4])


def write(
    target: LLM, draft: LLM, prompts: Iterator[str], setting: Setting, num_positions: int
) -> Iterator[Written]:
    """Let the target continue prompts until it has written so many tokens."""
    seed, most = 0, target.max_model_len - MAX_NEW
    encoded = (target.tokenizer.encode(prompt) for prompt in prompts)
    that_fit = (prompt for prompt in encoded if len(prompt) <= most)
    while num_positions > 0:
        batch = list(islice(that_fit, NUM_AT_ONCE))
        params = [
            SamplingParams(
                temperature=setting.temperature,
                top_k=setting.top_k,
                top_p=setting.top_p,
                max_tokens=MAX_NEW,
                seed=seed + number,
            )
            for number in range(len(batch))
        ]
        seed += len(batch)
        for prompt, said in zip(batch, target.generate(batch, params), strict=True):
            if num_positions <= 0:
                return
            new_ids = list(said.token_ids)
            written = [*prompt, *new_ids]
            rows = slice(len(prompt) - 1, len(written) - 1)
            num_positions -= len(new_ids)
            yield Written(
                np.array(new_ids),
                target.logits(written)[rows].float().numpy(),
                draft.logits(written)[rows].float().numpy(),
            )


if __name__ == "__main__":
    main()
