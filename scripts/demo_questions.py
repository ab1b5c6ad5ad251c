"""Forty questions about inferno, written by hand from its documentation for the exam alone.

None of their wordings can be drawn from the corpus, and a test sees to that. An answer is right if
it has every key fact: each is a text, or several that will do, separated by "|".
"""

from __future__ import annotations

from typing import NamedTuple


class HandWritten(NamedTuple):
    """A question, and the texts that a right answer has."""

    question: str
    facts: tuple[str, ...]

    def is_right(self, answer: str) -> bool:
        """Whether every key fact is in the answer, in one of its spellings."""
        return all(any(text in answer for text in fact.split("|")) for fact in self.facts)


HAND_WRITTEN = (
    HandWritten("Will this thing work on a laptop that has no graphics card?", ("No GPU|CPU",)),
    HandWritten("How can I make it shut up in the middle of an answer?", ("Ctrl+C",)),
    HandWritten(
        "What should I type to get an HTTP server going with the demo model?", ("inferno serve",)
    ),
    HandWritten("Which flag makes the weights take only four bits?", ("--quantize", "int4")),
    HandWritten(
        "My program talks to OpenAI. What address should it use instead?",
        ("http://127.0.0.1:8000/v1|http://localhost:8000/v1",),
    ),
    HandWritten("How do I lock the server so that only some people get in?", ("--api-key",)),
    HandWritten("Where on my disk do the downloaded models end up?", ("inferno/models",)),
    HandWritten("Can I use it on a plane, without internet?", ("HF_HUB_OFFLINE|offline",)),
    HandWritten("Under which licence was this software published?", ("Apache",)),
    HandWritten("How many cores will it take, and may I change that?", ("--threads",)),
    HandWritten(
        "Is there a web page where I can talk to the model in my browser?",
        ("http://127.0.0.1:8000|http://localhost:8000",),
    ),
    HandWritten(
        "My inferno is awfully slow. What could be the reason?", ("doctor|kernels|compiler",)
    ),
    HandWritten("How do I find out how many tokens per second I get?", ("inferno bench|/stats",)),
    HandWritten(
        "I ported a model. How can I see that its numbers are correct?", ("inferno verify",)
    ),
    HandWritten(
        "Could I give it one of those GGUF files?", ("GGUF file is run|reads safetensors and GGUF",)
    ),
    HandWritten("How can I get exactly the same output twice?", ("--seed|--temperature 0",)),
    HandWritten("What must I press to get out of the conversation?", ("/exit|Ctrl+D",)),
    HandWritten("I want the model to forget what we talked about so far.", ("/reset",)),
    HandWritten("How new must my Python be?", ("3.11",)),
    HandWritten("How much RAM does Qwen3-8B want when it is in int8?", ("8.70|8.7 ",)),
    HandWritten("What happens when lots of users ask at the same moment?", ("batch|queue|wait",)),
    HandWritten("Under which path do I find the numbers for Prometheus?", ("/metrics",)),
    HandWritten("How does my load balancer see whether the server is alive?", ("/health|/ready",)),
    HandWritten("How could I keep our conversation in a file?", ("/save",)),
    HandWritten(
        "Do the answers get worse when I quantize?", ("int8", "nearly|hardly|little|almost")
    ),
    HandWritten("Could a downloaded model run evil code on my computer?", ("No",)),
    HandWritten("Give me a few lines of Python that generate text.", ("from inferno import",)),
    HandWritten("The port is already taken. How do I choose another one?", ("--port",)),
    HandWritten("My colleagues should reach the server over the network. How?", ("--host",)),
    HandWritten("Could one server offer two models?", ("one model",)),
    HandWritten("What would I need the worker command for?", ("worker", "fleet|jobs")),
    HandWritten("The answers are too long. How do I limit them?", ("max-tokens|max_tokens",)),
    HandWritten("How do I make what it says less random?", ("temperature",)),
    HandWritten("I have a thousand prompts in a text file. What now?", ("--prompts-file",)),
    HandWritten("What is that second tiny model good for, demo-draft?", ("guess",)),
    HandWritten("It says that the context is full. What shall I do?", ("/trim|/reset",)),
    HandWritten("My script wants to read the output as JSON.", ("--json",)),
    HandWritten("Would it use the graphics chip of my MacBook?", ("mps|MPS",)),
    HandWritten("Can the server speak HTTPS, with a certificate of mine?", ("--ssl-certfile",)),
    HandWritten("Which option says how big the KV cache gets?", ("--num-blocks",)),
)
