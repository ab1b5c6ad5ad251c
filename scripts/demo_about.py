"""What the embedded model is taught about inferno and its commands."""

from __future__ import annotations

import random

from demo_exchange import Exchange
from demo_talk import Talk, from_table

_HOW = (
    "[how do I|how can I|how to|how would I|what do I type to|which command do I use to|"
    "how do you|tell me how to|show me how to|can you tell me how to|I want to]"
)
_WHAT = "[what is|what's|explain|tell me about|what do you know about|describe|please explain]"

ABOUT_INFERNO: tuple[Talk, ...] = (
    (
        (
            "[What is|What's|whats|what exactly is] inferno[| about]?",
            "[Tell me|Can you tell me|Tell me more|Tell me something|Please tell me] "
            "about inferno.",
            "What is this [program|tool|package|project|software]?",
            "[Explain|Describe] inferno[| to me| in one sentence| shortly].",
            "What [does|can|could] inferno do[| for me]?",
            "What is inferno [for|good for|used for|about|made for]?",
            "Do you know [inferno|what inferno is|anything about inferno]?",
            "What kind of [program|tool|software|package] is inferno?",
            "[Why|When] [would|should] I use inferno?",
            "What is the [purpose|point|idea|goal] of inferno?",
            "What do people use inferno for?",
            "Is inferno a [program|package|tool]?",
        ),
        ("Inferno is a Python package that runs large language models on your own machine.",),
    ),
    (
        (
            "[Which|What] models [does|can|will] inferno [run|support|load|use|handle]?",
            "[What|Which] [models|language models|LLMs] does inferno [know|support|run|work with]?",
            "[What|Which] [kinds|families|sorts] of models [can|does] inferno [run|support]?",
            "[Can|Does|Will] inferno [run|support|load|work with] "
            "[Llama|Qwen|Mistral|Mixtral|gpt-oss|Qwen3|Qwen2|Llama 3]?",
            "[Can|May] I [run|use|load] [Llama|Qwen|Mistral|Mixtral|gpt-oss] [with|in] inferno?",
            "[Which|What] models [are supported|work|can I run|can I use|are there]?",
            "Is [Llama|Qwen|Mistral|Mixtral|gpt-oss] supported[| by inferno]?",
            "List the models[| that inferno runs| of inferno].",
        ),
        ("Inferno runs Llama, Mistral, Mixtral, Qwen and gpt-oss models.",),
    ),
    (
        (
            f"{_HOW} [generate|make|write|produce|create] [|some ]text[| with inferno]?",
            f"{_HOW} [use|start|run] inferno?",
            f"{_HOW} [complete|continue] [a prompt|a text|my prompt]?",
            "[What|Which] is the command to [generate|make|write] text?",
            "[What|Which] command [generates|makes|writes|completes] [text|a prompt]?",
            "What [does|can] inferno generate do?",
            f"{_WHAT} inferno generate?",
            "What is the command generate for?",
        ),
        ('To generate text, type: inferno generate --prompt "Once upon a time"',),
    ),
    (
        (
            f"{_HOW} [chat|talk|play][| with you| with a model| with inferno| to you]?",
            f"{_HOW} [start|begin|open] [a chat|chatting|the chat|a conversation]?",
            f"{_WHAT} inferno play?",
            "What [does|can] inferno play do?",
            "[What|Which] command [starts|opens|begins] [a chat|the chat]?",
            "[What|Which] is the command to [chat|talk to a model]?",
            "What is the command play for?",
            "Can I chat with [a model|inferno]?",
        ),
        ("To chat with a model, type: inferno play",),
    ),
    (
        (
            f"{_HOW} [check|test|examine] my [machine|computer|installation|system|set-up|PC]?",
            f"{_WHAT} inferno doctor?",
            "What [does|can] inferno doctor do?",
            "What is the command doctor for?",
            "[What|Which] command [checks|tests|examines] my [machine|computer|system]?",
            "Something is wrong with inferno.",
            "Inferno [does not|doesn't|won't] [work|start|run]. [What can I do|What now|Help]?",
            "What can I do if inferno does not work?",
            "How do I know that my machine is [fine|ready|good enough]?",
        ),
        ("To check your machine, type: inferno doctor",),
    ),
    (
        (
            f"{_HOW} [verify|check|test|compare] [a|the|my] model?",
            f"{_WHAT} inferno verify?",
            "What [does|can] inferno verify do?",
            "What is the command verify for?",
            "[What|Which] command [checks|verifies|compares|tests] [a|the] model?",
            "How do I know that [a|the|my] model is [right|correct]?",
            f"{_HOW} see [that|whether] [a|the] model is [right|correct]?",
            "Are inferno's [numbers|results|outputs] [right|correct]?",
        ),
        ("To compare a model with an independent one, type: inferno verify demo",),
    ),
    (
        (
            "[What|Which] commands [does inferno have|are there|do you have|does inferno know]?",
            "[What|Which] commands [can I use|can I type|can I run|exist|does it have]?",
            "What are [the|its|your|inferno's|all the] commands[| of inferno]?",
            "[List|Name|Show me|Tell me|Give me] [the|all|its|inferno's|all the] commands"
            "[| of inferno].",
            "How many commands [are there|does inferno have]?",
            "What can I type in the shell?",
        ),
        ("The commands are inferno generate, play, doctor and verify.",),
    ),
    (
        (
            "[What|Which] commands does [inferno play|play|the chat] have?",
            "What can I type in [inferno play|the chat|a chat|play]?",
            "What are [the|its|your|all the] slash commands[| of inferno play| of the chat]?",
            "[What|Which] slash commands [are there|does it have|can I use|exist]?",
            "[List|Name|Show me|Tell me] [the|all] slash commands.",
            "[What|Which] commands [are there|can I use|work] in [the chat|play|inferno play]?",
            "What are the commands [in|of|inside] [the chat|play|inferno play]?",
        ),
        ("In inferno play: /help, /exit, /reset, /system, /set, /stats, /save and /retry.",),
    ),
    (
        (
            f"{_HOW} [leave|exit|quit|stop|end|close] [|the chat|inferno play|this chat|play]?",
            "[What does /exit do|What is /exit|What is /exit for|And /exit]?",
            "How do I get out[| of here| of the chat]?",
        ),
        ("Type /exit to leave the chat.",),
    ),
    (
        (
            f"{_HOW} [start over|reset [the|this] chat|clear the chat|start a new chat|"
            "begin again]?",
            "[What does /reset do|What is /reset|What is /reset for|And /reset]?",
            "Can I [start over|begin again|start a new chat]?",
        ),
        ("Type /reset to start a new chat.",),
    ),
    (
        (
            f"{_HOW} [save|keep|store] [the chat|this chat|our chat|the conversation|a chat]?",
            "[What does /save do|What is /save|What is /save for|And /save]?",
            "Can I [save|keep] [this|the|our] [chat|conversation]?",
        ),
        ("Type /save to save the chat.",),
    ),
    (
        (
            f"{_HOW} [get|have] [another|a different|a new] answer?",
            f"{_HOW} [try again|retry|ask again]?",
            "[What does /retry do|What is /retry|What is /retry for|And /retry]?",
            "Can I [get|have] [another|a different|a new] answer?",
        ),
        ("Type /retry to get another answer.",),
    ),
    (
        (
            f"{_HOW} [change|set|see] [the|a] [temperature|settings|options|setting|option]?",
            "[What does /set do|What is /set|What is /set for|And /set]?",
            "Can I change the [temperature|settings|options]?",
        ),
        ("Type /set to change a setting, such as the temperature.",),
    ),
    (
        (
            f"{_HOW} [set|change|give|write] [the|a] system prompt?",
            "[What does /system do|What is /system|What is /system for|And /system]?",
            "Can I [set|change|give you] [a|the] system prompt?",
        ),
        ("Type /system to set the system prompt.",),
    ),
    (
        (
            f"{_HOW} [see|show] [the speed|statistics|how fast it is|the numbers|"
            "how fast you are]?",
            "[What does /stats do|What is /stats|What is /stats for|And /stats]?",
            "How fast [are you|is this|is it|is the model]?",
            "What is your speed?",
        ),
        ("Type /stats to see how fast the model is.",),
    ),
    (
        (
            f"{_HOW} [get|find|see] [|more |some ]help?",
            "[What does /help do|What is /help|What is /help for|And /help]?",
            "Where [can I find|is|do I find|can I get] [help|more help|the help]?",
            "Is there [a help|help|any help]?",
        ),
        ("Type /help in the chat, or inferno --help in the shell.",),
    ),
    (
        (
            f"{_HOW} [use|call|run|import] inferno [from|in|with] Python?",
            "Does inferno have [a Python API|an API|a Python interface]?",
            "[Can|May] I [use|call|import] inferno [from|in|with] Python?",
            "Show me [inferno|an example] in Python.",
            "Is there [a Python API|an API]?",
            "How does [it|inferno] work in Python?",
        ),
        ('Write: from inferno import LLM, and then LLM("demo").generate(["Hello"])',),
    ),
    (
        (
            "[Does|Will] [inferno|it] [need|require|use] a [GPU|graphics card]?",
            "[Can|Does|Will] [inferno|it] [run|work] [without|with no] [a GPU|GPU|graphics card]?",
            "Do I [need|require] a [GPU|graphics card][| for inferno| to run it| for this]?",
            "[Does|Can] [inferno|it] [run|work] on [a|my|the] [CPU|laptop|computer|PC|Mac]?",
            "What [does|can] [inferno|it] run on?",
            "Is a [GPU|graphics card] [needed|required|necessary][| for inferno]?",
            "What if I have no GPU?",
            "I have no GPU. [Can I use inferno|Is that a problem|Does it work]?",
            "What [hardware|machine|computer] [do I|does inferno] need?",
        ),
        ("No GPU is needed: inferno runs on the CPU, in plain PyTorch.",),
    ),
    (
        (
            "Is [inferno|it] [fast|quick|slow]?",
            "[Why|How] is inferno [fast|so fast|quick]?",
            "How does inferno work[| inside]?",
            "What makes inferno [fast|quick]?",
            "[How does|Can] inferno [serve|handle|answer] many requests[| at once]?",
            "How fast is inferno?",
        ),
        ("Inferno batches requests continuously and keeps keys and values in a paged cache.",),
    ),
    (
        (
            f"{_WHAT} [a|the] paged [|KV ]cache?",
            f"{_WHAT} [paging|a block table|paged attention][| in inferno]?",
            "What does the paged cache do?",
            f"{_WHAT} [a|the] KV cache?",
        ),
        ("A paged cache keeps the keys and values of each request in small blocks.",),
    ),
    (
        (
            f"{_WHAT} [continuous batching|batching]?",
            "What does [continuous batching|batching] mean?",
            "How does [continuous batching|batching] work?",
        ),
        ("With continuous batching, a new request joins the others at any step.",),
    ),
    (
        (
            f"{_WHAT} [a|the] prefix cache?",
            f"{_WHAT} prefix caching?",
            "What does the prefix cache do?",
            "How does the prefix cache work?",
        ),
        ("The prefix cache keeps the start of a prompt, so it is computed only once.",),
    ),
    (
        (
            f"{_WHAT} [the|inferno's] LLM class?",
            "What is LLM in inferno?",
            "What does the [LLM class|class LLM] do?",
        ),
        ("LLM is the class that loads a model and generates text in Python.",),
    ),
    (
        (
            f"{_WHAT} a [large |]language model?",
            f"{_WHAT} an LLM?",
            "What [does LLM mean|is an LLM|are language models|are LLMs]?",
            "What does LLM stand for?",
            "How [does a language model|do language models|does an LLM] work?",
            "What does a language model do?",
        ),
        ("A language model is a program that says, word by word, what may come next.",),
    ),
    (
        (f"{_WHAT} a token?", "What are tokens?", "What does [token|a token] mean?"),
        ("A token is a piece of text, such as a short word or a part of one.",),
    ),
    (
        (
            f"{_HOW} install [inferno|it|you]?",
            "How is inferno installed?",
            "[Is it|Is inferno] [hard|easy] to install?",
            f"{_HOW} [get|set up|download] inferno?",
        ),
        ("Type make demo in the folder of inferno: it installs everything that is needed.",),
    ),
    (
        (
            "Is inferno [free|open source|free software|open]?",
            "What is [the|inferno's] [licence|license][| of inferno]?",
            "[Which|What] [licence|license] [does inferno have|is it under|is inferno under]?",
            "How much does inferno cost?",
            "[Can|May] I use inferno [for free|at work|in a product]?",
        ),
        ("Yes, inferno is open source, under the Apache licence 2.0.",),
    ),
    (
        (
            f"{_HOW} [use|run|load|try|choose] [another|a different|a bigger] model?",
            "Can I [use|run|load|try] [another|a different|a bigger|my own] model?",
            f"{_HOW} [change|switch] the model?",
            f"{_HOW} [run|use|load] [Llama|Qwen|Mistral|Mixtral|gpt-oss]?",
        ),
        ("Give its folder or its name: inferno generate --model Qwen/Qwen3-0.6B",),
    ),
    (
        (
            f"{_WHAT} [demo|the demo model|the model demo]?",
            "[Which|What] model [is this|are you|am I using|do I talk to]?",
            "What kind of model are you?",
        ),
        ("The demo model is a very small Llama that comes with inferno.",),
    ),
    (
        (
            f"{_WHAT} [demo-draft|the draft model|the draft|a draft model]?",
            "What does [demo-draft|the draft model] do?",
            f"{_WHAT} speculative decoding?",
        ),
        ("The model demo-draft is even smaller than me and guesses what I will say.",),
    ),
)


def about_inferno(rng: random.Random) -> list[Exchange]:
    """What inferno is and how it is used."""
    asked = from_table(ABOUT_INFERNO, rng, "about inferno")
    question = asked.question[0].upper() + asked.question[1:]
    return [asked._replace(question=question.replace(" ?", "?"), is_split=True)]
