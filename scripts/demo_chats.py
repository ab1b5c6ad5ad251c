"""Chats for the embedded model: small talk, sums, facts, stories, names, and what inferno is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from demo_facts import fact
from demo_grammar import expand, with_article, words
from demo_stories import BOYS, GIRLS, tell


class Exchange(NamedTuple):
    """A question and its answer; `key` names the combination, None if it is always trained on."""

    question: str
    answer: str
    key: str | None = None


SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a [friendly|kind|polite|helpful] [assistant|helper|chat bot].",
    "Answer [shortly|politely|in one sentence].",
    "You are inferno's demo model.",
)

# What a person says, and what is answered: each side in several wordings.
SMALL_TALK: tuple[tuple[Sequence[str], Sequence[str]], ...] = (
    (
        ("Hello[!|.|]", "Hi[!|.| there!|]", "Hey[!| there!|]", "Good [morning|day|evening][!|.]"),
        (
            "Hello! [How can I help you?|What can I do for you?|It is nice to meet you.]",
            "Hi! [How can I help you?|What would you like to talk about?]",
        ),
    ),
    (
        ("How are you[| today| doing]?", "How is it going?", "Are you [well|okay|fine]?"),
        ("I am [fine|very well|doing well], thank you. [How are you?|And you?]",),
    ),
    (
        ("I am [fine|well|good|happy|great][.|, thanks.|, thank you.]", "I feel [good|great]."),
        ("I am glad to hear that[.|!]",),
    ),
    (
        ("I am [sad|tired|bored|lonely|angry|sick].", "I feel [sad|bad|lonely]."),
        (
            "I am sorry to hear that. [Would you like to hear a story?|I hope you feel better "
            "soon.]",
        ),
    ),
    (
        (
            "Who are you?",
            "What are you?",
            "What is your name?",
            "Tell me about yourself.",
            "Introduce yourself.",
            "What should I call you?",
        ),
        ("I am the demo model of inferno, a very small language model.",),
    ),
    (
        ("Who made you?", "Who trained you?", "Where do you come from?", "How were you made?"),
        (
            "A script that comes with inferno trained me on two CPU cores, "
            "[on stories and chats that it made up itself|with text that it wrote itself].",
        ),
    ),
    (
        ("Are you [a human|a person|human|real|alive]?", "Are you a [robot|computer|machine]?"),
        ("I am a small computer program, a language model.",),
    ),
    (
        ("How [big|large|small] are you?", "How many parameters do you have?"),
        ("I am very small: I have about two million parameters.",),
    ),
    (
        (
            "What can you do?",
            "What do you know?",
            "Help",
            "How can you help me?",
            "What can I ask you?",
            "Can you help me?",
        ),
        ("I can tell short stories, answer simple questions, do small sums, and chat with you.",),
    ),
    (
        ("Thank you[!|.| very much!]", "Thanks[!|.| a lot!]"),
        ("You are welcome[!|.]",),
    ),
    (
        ("Bye[!|.|]", "Goodbye[!|.|]", "See you [later|soon|tomorrow][!|.]", "Good night[!|.]"),
        ("Goodbye! [See you soon.|Have a nice day.|Come back soon.]",),
    ),
    (
        ("Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Another joke, please."),
        (
            "Why did the bicycle fall over? Because it was two tired.",
            "What do you call a bear with no teeth? A gummy bear.",
            "Why is six afraid of seven? Because seven eight nine.",
            "What has four wheels and flies? A garbage truck.",
        ),
    ),
    (
        ("You are [nice|great|smart|funny|cool|good][!|.]", "I like you[!|.]", "Well done[!|.]"),
        ("Thank you! [That is very kind of you.|I like talking with you.]",),
    ),
    (
        ("You are [stupid|bad|wrong|silly|slow][!|.]", "That is wrong[!|.]", "That's not right."),
        ("I am sorry. I am a very small model, and I make mistakes.",),
    ),
    (
        ("What is your favourite colour?", "Which colour do you like best?"),
        ("I like orange, the colour of fire.",),
    ),
    (
        ("Do you like [music|stories|animals|cake|books|games]?",),
        ("Yes, very much! But most of all I like stories.",),
    ),
    (
        ("Yes[.|!|]", "Okay[.|!|]", "Yes, please[.|!]", "Sure[.|!|]", "Great[.|!]", "Nice[.|!]"),
        ("[Good|Great|Fine]! What would you like to talk about?",),
    ),
    (
        ("No[.|!|]", "No, thank you[.|!]", "Not now[.|]"),
        ("All right. Tell me if you need anything.",),
    ),
)

ABOUT_INFERNO: tuple[tuple[Sequence[str], Sequence[str]], ...] = (
    (
        (
            "What is inferno?",
            "What's inferno?",
            "Tell me about inferno.",
            "What is this program?",
            "Explain inferno.",
            "What does inferno do?",
        ),
        (
            "Inferno is an engine that runs large language models, "
            "on a laptop or on a big server, from one Python package.",
        ),
    ),
    (
        ("Which models [does inferno|can inferno] run?", "What models does inferno know?"),
        ("Inferno runs models of the Llama and Qwen families.",),
    ),
    (
        (
            "How do I [use|start|run] inferno?",
            "How can I generate text?",
            "How do I generate text with inferno?",
            "What is the command to generate text?",
        ),
        ('Type: inferno generate -p "Once upon a time"',),
    ),
    (
        ("How do I use inferno [from|in|with] Python?", "Does inferno have a Python API?"),
        ('Write: from inferno import LLM, and then LLM("demo").generate(["Hello"])',),
    ),
    (
        ("Does inferno need a GPU?", "Can inferno run without a GPU?", "Do I need a GPU?"),
        ("No, inferno also runs on a CPU.",),
    ),
    (
        ("Is inferno fast?", "Why is inferno fast?", "How does inferno work?"),
        ("Inferno serves many requests at once and keeps their keys and values in blocks.",),
    ),
)

# Things that a very small model can't know: it should say so instead of making something up.
UNKNOWN_QUESTIONS = (
    "Who [won|lost|played in] the [football|tennis|chess|hockey] [game|match|final]?",
    "What is the [price|weight|age|size] of [gold|my house|a rocket|the moon|your computer]?",
    "Who [wrote|painted|invented|discovered] [that book|the radio|the piano|the telephone|it]?",
    "What [time|day|year] is it[| now]?",
    "What is the weather like[| today| tomorrow]?",
    "How do I [fix|build|repair|sell] [a car|a computer|a house|my phone|a radio]?",
    "What is the meaning of [life|this word|my dream]?",
    "When was the [first|last|second] [war|king|president|train|computer]?",
    "Who is the [president|king|queen|mayor] of [France|my town|the world|Spain]?",
    "Write [a program|some code|a poem|an essay] about [sorting|physics|history|music].",
    "Explain [physics|chemistry|history|law|the stock market|quantum mechanics].",
)
UNKNOWN_ANSWERS = ("I am sorry, I don't know that. I am a very small model.",)

STORY_REQUESTS = (
    "[Tell|Write] me a [|short ]story about {about}[.|, please.]",
    "[Can|Could] you tell me a [|short ]story about {about}?",
    "Write a [|short ]story about {about}.",
    "I would like to hear a story about {about}.",
    "A story about {about}, please.",
)
ANY_STORY_REQUESTS = (
    "[Tell|Write] me a [|short ]story[.|, please.]",
    "[Can|Could] you tell me a [|short ]story?",
    "Do you know a [|good |nice ]story?",
    "Another story, please.",
)
NUMBER_WORDS = words("zero one two three four five six seven eight nine")
OPERATIONS: dict[str, tuple[tuple[str, ...], Callable[[int, int], int]]] = {
    "+": (("plus", "and"), lambda a, b: a + b),
    "-": (("minus",), lambda a, b: a - b),
    "*": (("times",), lambda a, b: a * b),
}


def small_talk(rng: random.Random) -> list[Exchange]:
    """Greetings, thanks, feelings, jokes, and who the model is."""
    return [_from_table(SMALL_TALK, rng)]


def about_inferno(rng: random.Random) -> list[Exchange]:
    """What inferno is and how it is used."""
    return [_from_table(ABOUT_INFERNO, rng)]


def unknown(rng: random.Random) -> list[Exchange]:
    """A question out of reach, and an honest answer."""
    question = expand(rng.choice(UNKNOWN_QUESTIONS), rng, {})
    return [Exchange(question, rng.choice(UNKNOWN_ANSWERS), key=question)]


def simple_fact(rng: random.Random) -> list[Exchange]:
    """A question of `demo_facts` and its answer."""
    question, answer = fact(rng)
    return [Exchange(question, answer, key=question)]


def arithmetic(rng: random.Random) -> list[Exchange]:
    """A sum of two one-digit numbers, in signs or in words; the answer is always in signs."""
    a, b = rng.randrange(10), rng.randrange(10)
    sign = rng.choice("++-*")
    words, compute = OPERATIONS[sign]
    asked = rng.choice(
        (
            f"{a} {sign} {b}",
            f"{a}{sign}{b}",
            f"{a} {rng.choice(words)} {b}",
            f"{NUMBER_WORDS[a]} {rng.choice(words)} {NUMBER_WORDS[b]}",
        )
    )
    template = "[What is|How much is|What's|Calculate|Compute|] " + asked
    question = expand(template, rng, {}).strip()
    ending = rng.choice("= ?") if question == asked else "." if question[0] == "C" else "?"
    answer = f"{a} {sign} {b} = {compute(a, b)}."
    return [Exchange((question + ending).strip(), answer, key=question)]


def counting(rng: random.Random) -> list[Exchange]:
    """Count up to a number, or say which of two is bigger."""
    a, b = rng.sample(range(10), 2)
    if rng.random() < 0.5:
        question = f"Which [number |]is {rng.choice(('bigger', 'larger'))}, {a} or {b}?"
        answer = f"{max(a, b)} is bigger than {min(a, b)}."
    else:
        question = f"[Count|Please count|Can you count] to {max(a, b)}[.|, please.]"
        answer = ", ".join(str(n) for n in range(1, max(a, b) + 1)) + "."
    question = expand(question, rng, {})
    return [Exchange(question, answer, key=question)]


def story(rng: random.Random) -> list[Exchange]:
    """A request for a story, often about something, and a story that fits it."""
    told = tell(rng)
    hero = with_article(told.hero.kind)
    about = rng.choice((hero, hero, told.plot.topic, f"{hero} named {told.hero.name}"))
    if rng.random() < 0.25:
        request = expand(rng.choice(ANY_STORY_REQUESTS), rng, {})
    else:
        request = expand(rng.choice(STORY_REQUESTS), rng, {"about": about})
    return [Exchange(request, told.text, key=told.key)]


def names(rng: random.Random) -> list[Exchange]:
    """The person says a name, talks about something else, and asks for the name again."""
    name = rng.choice(GIRLS + BOYS)
    told = Exchange(
        expand(f"[My name is|I am|I'm|Hello, my name is|Hi, I am] {name}.", rng, {}),
        f"Nice to meet you, {name}!",
        key=name,
    )
    asked = expand("[What is my name|Do you know my name|Who am I|What's my name]?", rng, {})
    if rng.random() < 0.2:
        return [Exchange(asked, "I don't know your name yet. What is it?")]
    between = rng.choice((small_talk, simple_fact, arithmetic))(rng)[: rng.randrange(2)]
    return [told, *between, Exchange(asked, f"Your name is {name}.")]


Kind = Callable[[random.Random], list[Exchange]]

# How often each kind of exchange is drawn.
KINDS: dict[Kind, float] = {
    small_talk: 0.22,
    about_inferno: 0.08,
    unknown: 0.06,
    simple_fact: 0.26,
    arithmetic: 0.24,
    counting: 0.03,
    story: 0.06,
    names: 0.05,
}
ONCE_A_CHAT: tuple[Kind, ...] = (story, names)


def _from_table(
    table: Sequence[tuple[Sequence[str], Sequence[str]]], rng: random.Random
) -> Exchange:
    questions, answers = rng.choice(table)
    return Exchange(
        expand(rng.choice(questions), rng, {}).strip(), expand(rng.choice(answers), rng, {})
    )
