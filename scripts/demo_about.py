"""What the embedded model is taught about inferno and its commands."""

from __future__ import annotations

import random

from demo_exchange import Exchange
from demo_talk import Talk, from_table

_HOW = "[how do I|how can I|how to|how would I|what do I type to|which command do I use to]"

ABOUT_INFERNO: tuple[Talk, ...] = (
    (
        (
            "[What is|What's|whats] inferno?",
            "[Tell me|Can you tell me|Tell me more] about inferno.",
            "What is this [program|tool|package]?",
            "Explain inferno[| to me].",
            "What does inferno do?",
            "What can inferno do?",
            "What is inferno [for|good for]?",
            "Do you know inferno?",
        ),
        ("Inferno is a Python package that runs large language models on your own machine.",),
    ),
    (
        (
            "Which models [does inferno|can inferno] run?",
            "What models does inferno [know|support|run]?",
            "Can inferno run [Llama|Qwen|Mistral|Qwen3|Qwen2|Llama 3]?",
            "Does inferno [run|support] [Llama|Qwen|Mistral|Qwen3|Llama 3]?",
        ),
        ("Inferno runs Llama, Mistral, Qwen2 and Qwen3 models.",),
    ),
    (
        (
            f"{_HOW} [generate|make|write] text[| with inferno]?",
            f"{_HOW} [use|start|run] inferno?",
            "What is the command to generate text?",
            "What does inferno generate do?",
            "What is inferno generate?",
        ),
        ('To generate text, type: inferno generate --prompt "Once upon a time"',),
    ),
    (
        (
            f"{_HOW} [chat|talk|play][| with you| with a model| with inferno| to you]?",
            "What is inferno play?",
            "What does inferno play do?",
            "How do I start a chat?",
        ),
        ("To chat with a model, type: inferno play",),
    ),
    (
        (
            f"{_HOW} [check|test] my [machine|computer|installation|system|set-up]?",
            "What is inferno doctor?",
            "What does inferno doctor do?",
            "Something is wrong with inferno.",
            "Inferno does not work. What can I do?",
        ),
        ("To check your machine, type: inferno doctor",),
    ),
    (
        (
            "[What|Which] commands [does inferno have|are there|do you have|does inferno know]?",
            "What are the commands[| of inferno]?",
            "List the commands.",
        ),
        ("The commands are inferno generate, inferno play and inferno doctor.",),
    ),
    (
        (
            "[What|Which] commands does [inferno play|play|the chat] have?",
            "What can I type in inferno play?",
            "What are the slash commands?",
            "Which slash commands are there?",
        ),
        ("In inferno play: /help, /exit, /reset, /system, /set, /stats, /save and /retry.",),
    ),
    (
        (
            f"{_HOW} [leave|exit|quit|stop|end] [|the chat|inferno play|this chat|play]?",
            "What does /exit do?",
        ),
        ("Type /exit to leave the chat.",),
    ),
    (
        (
            f"{_HOW} [start over|reset the chat|clear the chat|start a new chat]?",
            "What does /reset do?",
        ),
        ("Type /reset to start a new chat.",),
    ),
    (
        (f"{_HOW} save [the chat|this chat|our chat|the conversation]?", "What does /save do?"),
        ("Type /save to save the chat.",),
    ),
    (
        (
            f"{_HOW} [get another answer|try again|retry]?",
            "What does /retry do?",
            "Can I get another answer?",
        ),
        ("Type /retry to get another answer.",),
    ),
    (
        (
            f"{_HOW} change the [temperature|settings|options]?",
            "What does /set do?",
        ),
        ("Type /set to change a setting, such as the temperature.",),
    ),
    (
        (f"{_HOW} [set|change] the system prompt?", "What does /system do?"),
        ("Type /system to set the system prompt.",),
    ),
    (
        (f"{_HOW} see [the speed|statistics|how fast it is]?", "What does /stats do?"),
        ("Type /stats to see how fast the model is.",),
    ),
    (
        (f"{_HOW} get help?", "What does /help do?", "Where can I find help?"),
        ("Type /help in the chat, or inferno --help in the shell.",),
    ),
    (
        (
            "How do I use inferno [from|in|with] Python?",
            "Does inferno have a Python API?",
            "Can I use inferno [from|in] Python?",
            "Show me inferno in Python.",
        ),
        ('Write: from inferno import LLM, and then LLM("demo").generate(["Hello"])',),
    ),
    (
        (
            "Does inferno need a GPU?",
            "Can inferno run without a GPU?",
            "Do I need a GPU[| for inferno]?",
            "Does inferno run on a CPU?",
            "What does inferno run on?",
        ),
        ("No GPU is needed: inferno runs on the CPU, in plain PyTorch.",),
    ),
    (
        (
            "Is inferno fast?",
            "Why is inferno fast?",
            "How does inferno work?",
            "How does inferno serve many requests?",
        ),
        ("Inferno batches requests continuously and keeps keys and values in a paged cache.",),
    ),
    (
        ("What is a paged cache?", "What is the paged cache?", "What is paging in inferno?"),
        ("A paged cache keeps the keys and values of each request in small blocks.",),
    ),
    (
        ("What is continuous batching?", "What does continuous batching mean?"),
        ("With continuous batching, a new request joins the others at any step.",),
    ),
    (
        ("What is [a|the] prefix cache?", "What does the prefix cache do?"),
        ("The prefix cache keeps the start of a prompt, so it is computed only once.",),
    ),
    (
        ("What is the LLM class?", "What is LLM in inferno?"),
        ("LLM is the class that loads a model and generates text in Python.",),
    ),
    (
        (
            "What is [a|an] [large |]language model?",
            "What does LLM mean?",
            "What is an LLM?",
            "How does a language model work?",
        ),
        ("A language model is a program that says, word by word, what may come next.",),
    ),
    (
        ("What is a token?", "What are tokens?"),
        ("A token is a piece of text, such as a short word or a part of one.",),
    ),
    (
        ("[How do I|How can I|How to] install inferno?", "How is inferno installed?"),
        ("Type make demo in the folder of inferno: it installs everything that is needed.",),
    ),
    (
        (
            "[Is inferno free|Is inferno open source|What is the licence of inferno]?",
            "Which licence does inferno have?",
        ),
        ("Yes, inferno is open source, under the Apache licence 2.0.",),
    ),
    (
        (
            f"{_HOW} [use|run|load] another model?",
            "Can I use another model?",
            "How do I change the model?",
        ),
        ("Give its folder or its name: inferno generate --model Qwen/Qwen3-0.6B",),
    ),
    (
        (
            "What is [demo|the demo model]?",
            "Which model is this?",
            "What model are you?",
        ),
        ("The demo model is a very small Llama that comes with inferno.",),
    ),
    (
        ("What is demo-draft?", "What is the draft model?"),
        ("The model demo-draft is even smaller than me and guesses what I will say.",),
    ),
)


def about_inferno(rng: random.Random) -> list[Exchange]:
    """What inferno is and how it is used."""
    asked = from_table(ABOUT_INFERNO, rng, "about inferno")
    question = asked.question[0].upper() + asked.question[1:]
    return [asked._replace(question=question.replace(" ?", "?"), is_split=True)]
