"""A topic that the model is taught about inferno: one answer, and the many ways to ask for it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from demo_exchange import Exchange, punctuate
from demo_grammar import expand, sentence_case, words
from demo_split import is_held_out

_HOW = (
    "how [do|can|would|should|could|might] I {do}",
    "how [do|can] [you|we|people] {do}",
    "how [to|does one|is it possible to] {do}",
    "how {do}",
    "what [do|must|should|can|shall|could] I [type|do|enter|write|use|run] to {do}",
    "what do I have to [do|type] to {do}",
    "[which|what] [command|option|setting|key|flag|switch] [do I need|do I use|is there|should I "
    "use|is needed] to {do}",
    "[which|what] [option|flag|command|key] [lets|makes] me {do}",
    "what [is|'s] the [command|way|best way|easiest way|option] to {do}",
    "is [there|it] [a way|possible|a command|an option|hard|easy] to {do}",
    "[can|could|may] [I|you|one|it|inferno] {do}",
    "am I able to {do}",
    "[show|tell] me how [to|I can|I could] {do}",
    "[please|] explain how [to|I can] {do}",
    "[can|could] you [tell me|explain|show me] how [to|I] {do}",
    "I [want|need|would like|'d like|have|am trying|wish|'m trying] to {do}",
    "I [don't know|wonder|forgot] how to {do}",
    "what if I [want|need] to {do}",
    "[help me|let me|please] {do}",
    "{do}",
    "and to {do}",
    "where [do|can] I {do}",
    "I [want|need|would like|have] to {do}. [How|What now|Is that possible|Please help|What do I "
    "do]",
    "my [boss|friend|teacher|program|script|team] wants to {do}",
    "{do}? [How|Is that possible|Can I]",
    "[suppose|imagine] I [want|need] to {do}",
    "[would|will] you tell me how to {do}",
    "[my aim|my task|the plan] is to {do}",
    "a [friend|colleague] asked me how to {do}",
    "what is [needed|necessary|required] to {do}",
    "what [must|should|do] I [press|type|enter] to {do}",
    "how [is it done|does it work] to {do}",
)
_WHAT = (
    "what [is|'s|about|are|does] {thing}",
    "[tell me|tell me something|tell me more|what do you know|I have a question] about {thing}",
    "[explain|describe|show me|what exactly is|please explain] {thing}",
    "[can|could] you [explain|describe|tell me about] {thing}",
    "how [does {thing} work|about {thing}|do I use {thing}|is it with {thing}]",
    "what does {thing} [mean|do]",
    "does [it|inferno] [have|know|support|do|offer] {thing}",
    "is there {thing}",
    "{thing}",
    "I [want|need|would like] {thing}",
    "where [is|do I find|can I find] {thing}",
    "how do I [get|use|set up] {thing}",
    "and {thing}",
    "[question|help|info|information|a word] [about|on] {thing}",
    "[would|will|should] [it|inferno] [have|offer|show] {thing}",
    "what [should|must|can] I know about {thing}",
    "[can|could|would] you help me with {thing}",
    "I [heard|read|was told] [of|about] {thing}",
    "{thing}? [What is that|How does that work|Where]",
)
_PLACES = (
    *("with inferno", "in inferno", "here", "using inferno", "on my machine", "for inferno"),
    *("in this program", "with this program", "with this tool", "for my program", "at home"),
    *("for my team", "at work"),
)
_MODALS = {
    "can": words("could may might would"),
    "does": words("will would can could"),
    "do": words("could should would"),
    "could": words("can may"),
}
_SUBJECTS = frozenset(words("I you it we one inferno people"))
_FILLERS = words("just simply really actually exactly now maybe quickly also")
_AFTER = (
    *("and how", "and can I change that", "and what should I do", "if that is possible"),
    *("and why", "or not", "or is that impossible", "by the way", "do you know", "right"),
)
_SYNONYMS = {
    first: others.split(";")
    for first, others in (
        pair.split(": ")
        for pair in (
            "machine: computer;laptop;PC;box;notebook",
            "computer: machine;laptop;PC;box",
            "answer: reply;response",
            "answers: replies;responses",
            "see: view;look at;find out",
            "show: display",
            "change: alter;adjust;modify",
            "choose: pick;select;take",
            "set: choose;give;define",
            "save: keep;store",
            "delete: remove;erase;throw away",
            "remove: delete;erase",
            "slow: sluggish;terribly slow;not fast",
            "fast: quick",
            "faster: quicker",
            "memory: RAM",
            "RAM: memory",
            "big: large;huge",
            "many: lots of;a lot of;very many;a hundred",
            "users: people;clients;colleagues",
            "people: users;persons",
            "GPU: graphics card;graphics chip;video card",
            "CPU: processor",
            "folder: directory",
            "kept: stored;saved;put",
            "stored: kept;saved;found",
            "quantize: compress;shrink;pack",
            "browser: web browser",
            "protect: secure;guard;lock",
            "reach: contact;access",
            "download: fetch;get",
            "install: set up",
            "conversation: chat;talk;dialogue",
            "need: require",
            "want: wish;would like",
            "licence: license",
            "check: test;inspect",
            "works: runs",
            "start: launch",
            "print: output;write",
            "long: lengthy",
            "short: brief",
            "right: correct",
            "wrong: incorrect;not right",
            "numbers: figures;values",
            "leave: quit;get out of",
            "forget: drop;not remember",
            "several: two;some;many",
            "limit: restrict;bound",
            "stop: halt;break off",
            "port: port number",
            "internet: web",
            "safe: secure;harmless",
            "program: app;application;software",
            "script: program",
            "type: enter",
            "find: discover",
            "command: instruction",
            "option: flag;switch;setting",
            "hard: difficult",
            "easy: simple",
            "speed: pace",
            "smaller: lighter",
            "bigger: larger",
            "strangers: outsiders",
            "missing: absent",
            "supported: possible",
            "different: other",
            "notebook: laptop",
            "network: net",
            "taken: in use;occupied;busy",
            "correct: right",
        )
    )
}
# "How many users", "set up" and "find out" stay whole, and "inferno show" is a command.
_KEEPS_WHAT_FOLLOWS = frozenset(words("inferno how too very so the a memory stop"))
_KEEPS = {
    "set": ("up",),
    "find": ("out",),
    "show": ("me",),
    "see": ("whether", "that", "how", "what", "which"),
    "leave": words("cores some a"),
    "stop": words("word text string sequence strings"),
}
_DROPPED = frozenset(words("a an the my do does i is are can to it me of please you would should"))
_BEFORE = (
    "I am new here.;I have a question.;I have just installed inferno.;I use a laptop.;Sorry, I am "
    "a beginner.;I have a small computer.;I have read the documentation.;I work at a "
    "school.;Something else.;I like inferno.;My computer is old.;I use Linux.;I am writing a "
    "program.;I have one more question.;I can't find it in the docs."
)
_SHARE_OF_PLACES = 0.12
_SHARE_OF_DROPPED = 0.15
_SHARE_OF_BEFORE = 0.05
_SHARE_OF_TWO = 0.12
_SHARE_OF_REWORDED = 0.25
_SHARE_OF_SYNONYMS = 0.3
_KEPT_WORDS = 3


@dataclass(frozen=True)
class Topic:
    """What is answered, and how it may be asked for.

    `doing` are things to do, as in "how do I ...", `naming` are things to be told of, as in "what
    is ...", each separated by semicolons, and `asking` are whole questions. Commands stand at the
    end of the answer, after a colon. The word inferno in small letters is a command's beginning.
    """

    answer: str
    doing: str = ""
    naming: str = ""
    asking: tuple[str, ...] = ()

    def ask(self, rng: random.Random) -> Exchange:
        """Ask for it in one of its wordings, or in two, one after the other."""
        question = _varied(self._wording(rng), rng)
        before = punctuate(sentence_case(self._wording(rng)))
        is_fit = '"' not in question and before not in question
        # What is held out is trained on in no longer question either.
        is_known = not is_held_out(before) and not is_held_out(question)
        if rng.random() < _SHARE_OF_TWO and is_fit and is_known:
            question = f"{before} {question}"
        return Exchange(question, self.answer, "about inferno", is_split=True)

    def _wording(self, rng: random.Random) -> str:
        wordings: list[str] = list(self.asking)
        if self.doing:
            do = rng.choice(self.doing.split(";")).strip()
            wordings += [rng.choice(_HOW).replace("{do}", do) for _ in range(5)]
        if self.naming:
            thing = rng.choice(self.naming.split(";")).strip()
            wordings += [rng.choice(_WHAT).replace("{thing}", thing) for _ in range(4)]
        return " ".join(expand(rng.choice(wordings), rng, {}).split()).replace(" '", "'")


def _varied(question: str, rng: random.Random) -> str:
    """The question as it is, or with a place added, or in fewer words."""
    chance = rng.random()
    if chance < _SHARE_OF_PLACES and "inferno" not in question.lower() and "?" not in question:
        question = f"{question} {rng.choice(_PLACES)}"
    elif chance < _SHARE_OF_PLACES + _SHARE_OF_DROPPED:
        question = _shortened(question, rng)
    if rng.random() < _SHARE_OF_REWORDED:
        question = _reworded(question, rng)
    if rng.random() < _SHARE_OF_SYNONYMS:
        question = _in_other_words(question, rng)
    question = punctuate(sentence_case(question))
    if rng.random() < _SHARE_OF_BEFORE and not is_held_out(question):
        return f"{rng.choice(_BEFORE.split(';'))} {question}"
    return question


def _reworded(question: str, rng: random.Random) -> str:
    """With another modal verb, or a filler, or a tail: whatever does not change the answer."""
    parts = question.split()
    chance = rng.random()
    if chance < 0.5:
        verbs = [i for i, part in enumerate(parts) if part.lower() in _MODALS]
        if verbs:
            parts[verbs[0]] = rng.choice(_MODALS[parts[verbs[0]].lower()])
        return " ".join(parts)
    subjects = [i for i, part in enumerate(parts[:-1]) if part in _SUBJECTS]
    if chance < 0.75 and subjects:
        parts.insert(subjects[0] + 1, rng.choice(_FILLERS))
        return " ".join(parts)
    return question if question[-1] in '.?!:"' else f"{question}, {rng.choice(_AFTER)}"


def _in_other_words(question: str, rng: random.Random) -> str:
    """With other words of the same meaning, but commands and what is quoted as they are."""
    parts = question.split()
    places = [
        i
        for i, (before, part, after) in enumerate(
            zip(["", *parts[:-1]], parts, [*parts[1:], ""], strict=True)
        )
        if part in _SYNONYMS
        and before not in _KEEPS_WHAT_FOLLOWS
        and after not in _KEEPS.get(part, ())
    ]
    if '"' not in question:
        for i in rng.sample(places, min(len(places), rng.choice((1, 2)))):
            parts[i] = rng.choice(_SYNONYMS[parts[i]])
    return " ".join(parts)


def _shortened(question: str, rng: random.Random) -> str:
    """Without some of the small words, if enough others are left."""
    parts = question.split()
    kept = [part for part in parts if part.lower() not in _DROPPED]
    if len(kept) < _KEPT_WORDS:
        return question
    share = rng.choice((0.3, 0.6, 1.0))
    return " ".join(part for part in parts if part.lower() not in _DROPPED or rng.random() > share)
