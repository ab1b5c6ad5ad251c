"""Proposals that change what a request gets are found, whoever lets them; and that none were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from inferno.engine import build
from inferno.engine.execution import local
from inferno.engine.execution.known_sequences import KnownSequence
from inferno.engine.sampling.logits_processors import LogitsRow
from inferno.engine.sampling.sampler import Sampled
from inferno.engine.scheduling import speculation
from inferno.engine.scheduling.sequence import SequenceState
from inferno.engine.scheduling.speculation import Speculation
from inferno.engine.step_plan import ScheduledChunk
from inferno.errors import InvalidRequest
from inferno.requests import FinishReason, ProposalCounts, TokenLogprobs
from inferno.verify.checks.speculation import Findings
from inferno.verify.options import VerifyOptions
from inferno.verify.outcome import Row
from inferno.verify.runs.speculative import SpeculativeSchedule, Told
from tests.engine.simulation import StandIn
from tests.verify.faults import Plant
from tests.verify.planted import Folders
from tests.verify.tiny_models import verified

Patch = pytest.MonkeyPatch


class Predictions(StandIn):
    """Proposes what a request's prediction says next, so far as it was right until now."""

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        return [list(self._follow(*pair)) for pair in zip(sequences, most, strict=True)]

    def _follow(self, sequence: SequenceState, most: int) -> Sequence[int]:
        num_said = len(sequence.token_ids) - sequence.num_prompt_tokens
        return sequence.request.prediction_ids[num_said : num_said + most]


def propose(patch: Patch, *proposers: Any) -> None:
    """Let engines that may propose have these proposers."""

    def make(_: Any, **facts: Any) -> Speculation:
        return Speculation(proposers, **facts)

    patch.setattr(build, "Speculation", make)


def speculation_row(folders: Folders, model: str, **options: Any) -> Row:
    return verified(folders[model], **{"speculative": 1, **options}).rows[-1]


@pytest.mark.parametrize("model", ["llama", "qwen3, windows", "mixtral"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_proposals_change_nothing(
    folders: Folders, monkeypatch: Patch, model: str, dtype: str
) -> None:
    propose(monkeypatch, Predictions())
    row = speculation_row(folders, model, dtype=dtype)
    assert row.passed, row.problems
    [told] = row.findings
    assert "tokens were proposed, " in told


def test_kernels_that_round_by_the_batch_are_judged_by_what_rounding_does(
    folders: Folders, monkeypatch: Patch
) -> None:
    propose(monkeypatch, Predictions())
    row = speculation_row(folders, "llama", speculative=1, dtype="float16")
    assert row.passed, row.problems


def test_the_engines_own_proposers_propose(folders: Folders) -> None:
    row = speculation_row(folders, "llama", speculative=6)
    assert row.passed, row.problems
    assert any(told.startswith("ngram: ") for told in row.findings)


def takes_wrong_ones(patch: Patch) -> None:
    """Every second proposal stands whatever was drawn."""
    right = local._that_stand

    def that_stand(sampled: Sequence[Sampled], proposed: Sequence[int]) -> Sequence[Sampled]:
        stand = right(sampled, proposed)
        return sampled if len(sampled) % 2 == 0 else stand

    patch.setattr(local, "_that_stand", that_stand)


def rows_of(**wrong: Any) -> Plant:
    """Rows after proposals are taken for others."""

    def plant(patch: Patch) -> None:
        right = local._logits_rows

        def logits_rows(chunk: ScheduledChunk, sequence: KnownSequence) -> Iterator[LogitsRow]:
            for row in right(chunk, sequence):
                changed = {name: change(getattr(row, name)) for name, change in wrong.items()}
                yield row._replace(**changed) if row.proposed else row

        patch.setattr(local, "_logits_rows", logits_rows)

    return plant


def ends_late(patch: Patch) -> None:
    """What stands after a stop token is told as well."""
    right = SequenceState.extend

    def extend(self: SequenceState, token_ids: Sequence[int]) -> Any:
        _, reason = right(self, token_ids)
        return len(token_ids), reason

    patch.setattr(SequenceState, "extend", extend)
    patch.setattr(speculation, "_before_a_stop", lambda proposed, _: proposed)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (takes_wrong_ones, "and without proposals it is "),
        (rows_of(position=lambda position: position + 1), "and without proposals it is "),
        (rows_of(proposed=lambda _: ()), "and without proposals it is "),
        (ends_late, "it ends after "),
    ],
)
def test_proposals_that_change_something_alone_fail(
    folders: Folders, monkeypatch: Patch, plant: Plant, said: str
) -> None:
    propose(monkeypatch, Predictions())
    plant(monkeypatch)
    report = verified(folders["llama"], speculative=4)
    assert [row.number for row in report.rows if not row.passed] == ["S"]
    assert any(said in problem for problem in report.rows[-1].problems), report.rows[-1].problems
    assert "engine/scheduling/" in report.diagnosis.advice


def test_a_run_in_which_nothing_was_proposed_fails(folders: Folders, monkeypatch: Patch) -> None:
    propose(monkeypatch)
    row = speculation_row(folders, "llama", speculative=1)
    assert "nothing was tried" in row.problems[0]


def test_a_run_in_which_nothing_stood_fails(folders: Folders, monkeypatch: Patch) -> None:
    propose(monkeypatch, Predictions())
    monkeypatch.setattr(local, "_that_stand", lambda sampled, _: sampled[:1])
    row = speculation_row(folders, "llama", speculative=1, num_speculative_tokens=2)
    assert "proposals stood, so" in row.problems[0]


SCHEDULE = SpeculativeSchedule(
    requests=(), arrivals=(), aborts={"a": 2}, tokens_per_step=8, num_blocks=None, num_proposed=1
)
STOP, LENGTH, ABORTED = FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORTED


def found(ours: Told, theirs: Told, control: Told | None = None) -> Findings:
    findings = Findings(allowed=0.01)
    outcomes = [{("a", 0): told} for told in (ours, theirs, control or theirs)]
    findings.add(SCHEDULE, outcomes[0], outcomes[1], lambda: outcomes[2])
    return findings


def told(*token_ids: int, reason: FinishReason | None = LENGTH, at: float = 0.0) -> Told:
    logprobs = [TokenLogprobs(token_id, at, ()) for token_id in token_ids]
    counts = (ProposalCounts("ngram", 2, 1),)
    return Told([*token_ids], logprobs, finish_reason=reason, proposals=counts)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (told(1, 2), told(1, 2), ""),
        (told(1, 2, reason=ABORTED), told(1, 2, 3), ""),
        (told(1, 2, 3, 4, reason=ABORTED), told(1, 2, 3), "it goes on after 3 new tokens"),
        (told(1, 4), told(1, 2), "new token 1 is 4, and without proposals it is 2"),
        (told(1), told(1, 2), "it ends after 1 new tokens: length, and without proposals after 2"),
        (told(1, 2, reason=STOP), told(1, 2), "stop, and without proposals after 2"),
        (told(1, 2, reason=None), told(1, 2), "it has not ended"),
        (told(1, 2, at=-1e-9), told(1, 2), "of new token 0 differ by up to 1e-09"),
    ],
)
def test_what_differs_first_is_said(ours: Told, theirs: Told, said: str) -> None:
    problems = found(ours, theirs).all_problems()
    assert bool(problems) == bool(said)
    assert said in " ".join(problems)


def test_a_request_that_nobody_ended_may_not_be_aborted() -> None:
    ours, theirs = (told(1, 2, reason=reason) for reason in (ABORTED, LENGTH))
    findings = Findings(allowed=0.01)
    schedule = replace(SCHEDULE, aborts={"b": 2})
    findings.add(schedule, {("a", 0): ours}, {("a", 0): theirs}, lambda: {("a", 0): theirs})
    assert "it ends after 2 new tokens: abort" in findings.all_problems()[0]


def test_log_probabilities_of_a_prompt_that_are_missing_are_told() -> None:
    entries = (None, TokenLogprobs(5, -1.0, ()))
    whole = replace(told(1, 2), prompt_logprobs=entries)
    assert not found(whole, whole).all_problems()
    said = "0 log-probabilities of its prompt are told, not 2"
    assert said in found(told(1, 2), whole).all_problems()[0]
    said = "1 log-probabilities of its prompt are told, not 2"
    assert said in found(replace(whole, prompt_logprobs=entries[:1]), whole).all_problems()[0]
    assert not found(told(1, reason=ABORTED), whole).all_problems()  # it ended before


def test_rounding_excuses_what_it_explains_and_no_more() -> None:
    right, off, far = told(1, 2), told(1, 2, at=-0.005), told(1, 2, at=-0.5)
    assert found(off, right).all_problems()
    assert not found(off, right, control=off).all_problems()
    assert found(far, right, control=off).all_problems()
    assert not found(told(1, 3), right, control=off).all_problems()
    assert found(told(1), right, control=off).all_problems()
    many = Findings(allowed=0.01)
    ours, alone, control = ({("a", 0): each} for each in (told(1, 3), right, off))
    for _ in range(3):
        many.add(SCHEDULE, ours, alone, lambda: control)
    assert "3 requests go on with other tokens" in many.all_problems()[0]


@pytest.mark.parametrize(
    "options",
    [{"num_speculative_tokens": 3}, {"speculative_early_layers": 1}, {"speculative": -1}],
)
def test_options_that_say_nothing_are_refused(folders: Folders, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="speculative"):
        VerifyOptions(model=folders["llama"], **options)
