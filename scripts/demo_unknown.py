"""Questions that a very small model can't answer, and its honest answers."""

from __future__ import annotations

import random

from demo_exchange import Exchange, punctuate
from demo_grammar import expand, sentence_case, words
from demo_names import person_name
from demo_relations import RELATIONS

DONT_KNOW = "I don't know that. I am a very small model."
CANT_DO = "I can't do that. I am only a very small model."
TOO_HARD = "That is too hard for me. I can only do small sums."
_OTHER_COUNTRIES = words(
    "Mongolia Kazakhstan Uzbekistan Laos Cambodia Malaysia Singapore Bangladesh Bhutan Yemen Oman "
    "Qatar Jordan Lebanon Syria Israel Tunisia Algeria Libya Sudan Somalia Uganda Tanzania Zambia "
    "Zimbabwe Angola Namibia Botswana Mali Niger Chad Senegal Liberia Rwanda Malawi Mozambique "
    "Madagascar Bolivia Paraguay Uruguay Ecuador Venezuela Guyana Panama Nicaragua Honduras "
    "Guatemala Haiti Jamaica Fiji Samoa Tonga Latvia Lithuania Estonia Belarus Moldova Slovenia "
    "Slovakia Albania Kosovo Montenegro Andorra Monaco Malta Cyprus Georgia Armenia Azerbaijan "
    "Luxembourg Liechtenstein Texas California Bavaria Ohio Florida Siberia Narnia Atlantis Utopia"
)
_CITIES = words(
    "Hamburg Munich Barcelona Milan Naples Lyon Marseille Manchester Liverpool Chicago Boston "
    "Seattle Dallas Miami Toronto Montreal Vancouver Sydney Melbourne Osaka Kyoto Shanghai Mumbai "
    "Delhi Istanbul Zurich Geneva Rotterdam Antwerp Krakow Porto Seville Glasgow Bristol Leeds"
)
_LETTERS = "asdfghjklqwertyxcvb"
_CAPITALS = next(relation for relation in RELATIONS if relation.name == "capitals")
_STARTS = words("bl br cl d dr f fl g gl gr k kr l m n p pl qu r s sk sn sp st t tr v w z zw")
_MIDDLES = words("a e i o u oo ee ai ou")
_ENDS = words("b bble ck d ff g k lk m mp n nk p rf rk rp sh sk st t x xel zzle nter lp bo ri")
_THINGS = words(
    "house phone computer car boat school guitar city team shop company bank hospital station "
    "neighbour friend boss teacher doctor email letter file garden street office room hotel train"
)
_TOPICS = words(
    "politics economics chemistry physics history philosophy law medicine football tennis golf "
    "chess fashion cooking money taxes religion art opera jazz rock cinema stocks bitcoin biology "
    "astronomy geology gardening quantum relativity evolution democracy inflation marketing"
)
_DAYS = (
    *("today", "tomorrow", "tonight", "this evening", "next week", "in May", "at noon", "now"),
    *(f"on {day}" for day in words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")),
)
_OTHER_QUESTIONS = (
    "who [won|lost|played in|saw] the [football|tennis|chess|hockey|golf|last|first|big] "
    "[game|match|final|election|race][| {day}]",
    "who won the [World Cup|war|Nobel Prize|election][| in {year}| last year]",
    "what is the [price|weight|age|size|cost|height|length] of [gold|my {thing}|a rocket|a {thing}|"
    "the {thing}|silver|oil|a ticket|a bridge|a {nonsense}]",
    "how much does [a|my|the] {thing} [cost|weigh]",
    "how [far|big|heavy|expensive] is [the {thing}|my {thing}|{city}|{country}|the moon]",
    "how many people live in [{country}|{city}|the world]",
    "who [painted|invented|discovered|built] the [radio|piano|telephone|{thing}|light bulb|wheel]",
    "who wrote [that book|the Bible|Faust|Moby Dick|this {thing}]",
    "what [time|day|year|date|month] is it[| now| today]",
    "what is the [time|date][| now| today]",
    "what is today's date",
    "how is the weather[| today| in {city}]",
    "what is the weather [like|today|tomorrow|in {city}]",
    "[will it|is it going to|did it|does it] [rain|snow|storm|hail] [{day}|in {city}]",
    "will it be [hot|cold|sunny|windy|cloudy|warm|wet|foggy] [{day}|in {city}]",
    "will the [sun shine|wind blow|weather be good|snow melt] {day}",
    "do I need [an umbrella|a coat|a hat] {day}",
    "who is {name}[| {name}]",
    "who [was|is] {name} {nonsense}",
    "who was {name} {name}",
    "where is [my {thing}|{name}|the next {thing}|{city}|the {thing}]",
    "what is my [address|phone number|password|{thing}]",
    "who is the [president|king|queen|prime minister|mayor] of [{country}|{city}]",
    "when [was|did] {name} [born|die|arrive]",
    "when does the [train|bus|film|{thing}] [start|arrive|leave|open]",
    "when did the [war|{thing}] [begin|end|start]",
    "what happened in [{year}|{city}|{country}]",
    "why [is|does|did] [the {thing}|{name}|{topic}] [so big|work|broken|important|move]",
    "how does [a {thing}|{topic}|the {thing}|an engine] work",
    "how do I [cook rice|bake bread|fix my {thing}|learn {topic}|make money|sell my {thing}]",
    "what is [{topic}|quantum physics|the meaning of life|the square root of {big}]",
    "explain [{topic}|the theory of {topic}][| to me]",
    "tell me [about|something about|everything about] [{topic}|{city}|{name} {name}|the {thing}]",
    "what do you think [about|of] [{topic}|{city}|{name}|my {thing}]",
    "what is [a|the] {nonsense}",
    "what [colour|color] is [a {nonsense}|my {thing}]",
    "what does a {nonsense} [eat|say|do]",
    "how many [legs|eyes|wings] does a {nonsense} have",
    "what is the opposite of [a |]{nonsense}",
    "what is {nonsense}",
    "what is [a|the] {nonsense} [{thing}|{nonsense}]",
    "what is a [transformer|neural network|gradient|tensor|database]",
    "[what is|what's|describe|explain|show me] a {thing} {thing}",
    "how do you spell [{thing}|{nonsense}|{name}]",
    "spell [{thing}|{nonsense}|{name}|the word {thing}]",
    "what rhymes with [{thing}|{nonsense}|{name}|{city}]",
    "[which|what] word[|s] rhyme[|s] with {thing}",
    "what does {nonsense} mean",
    "what do you know about [{topic}|{nonsense}|{city}]",
    "how many letters are in {thing}",
    "why do people [like|need|study|talk about] {topic}",
    "is {topic} [hard|important|interesting|fun]",
    "which {thing} is [best|better|the best|the oldest]",
    "who owns [the|this|that] {thing}",
    "who is the [best|richest|oldest|fastest] [player|man|woman|singer] in the world",
    "what should I [do|eat|wear|buy|study][| today| tomorrow]",
    "how many [stars|cars|trees|fish|people] are there[| in the world| in {city}]",
    "is {name} [taller|older|better] than {name}",
    "what did {name} [say|do|eat][| yesterday| today]",
    "{nonsense} {nonsense} {nonsense}",
    "{nonsense}",
)
_REQUESTS = (
    "[can|could|will] you [write|read|make] [code|programs|a program|Python code|a poem|an essay]",
    "[can|could|will|do] you [draw|paint|sing|dance|cook|drive|fly|see pictures|play chess|"
    "search the web|swim|run|whistle|ride a bike|climb a tree|bake a cake|wash the car][| {day}]",
    "[can|could|will|would] you [translate|go shopping|go swimming|go out|call {name}|visit {name}|"
    "help me with my {thing}|read my emails|clean the {thing}|feed my dog|buy a {thing}][| {day}]",
    "[write|show me|make] [a program|some code|Python code|a poem|a song|an email|an essay]"
    "[| for me| about {topic}]",
    "translate [this|that|hello|the word {thing}] [into|to] [French|German|Spanish|Chinese]",
    "[play|show me|find] [some music|a song|a video|a picture|a photo][| of {name}]",
    "[call|write to|send an email to|phone] {name}",
    "[buy|order|book|find] [me |][a pizza|a ticket|a hotel|a {thing}][| in {city}]",
    "set [an alarm|a timer][| for me| for ten minutes]",
    "[open|close|delete|read] [the|my] [{thing}|window|file|door]",
    "turn [on|off] the [light|radio|music|{thing}]",
    "search [the web|the internet|for {topic}|the web for {thing}s|for {name}]",
    "[draw|paint] [a|the] {thing}",
    "drive me to {city}",
    "help me with [my homework|my {thing}|{topic}|my taxes]",
)
_CAPITAL_QUESTIONS = (
    "[what is|what's|tell me|do you know|can you tell me|name] the capital of {country}",
    "which city is the capital of {country}",
    "capital of {country}",
    "what is {country}'s capital",
    "what language do people speak in {city}",
    "{city} is the capital of what",
)
_HARD_SUMS = (
    "[what is|what's|calculate|how much is|] {big} [+|-|*|/|times|divided by|plus] {big}",
    "[what is|calculate|how much is|] {two} [*|times] {two}",
)


def unknown(rng: random.Random) -> list[Exchange]:
    """A question out of reach, and an honest answer."""
    draw = rng.choices(
        (
            (_OTHER_QUESTIONS, DONT_KNOW),
            (_CAPITAL_QUESTIONS, DONT_KNOW),
            (_REQUESTS, CANT_DO),
            (_HARD_SUMS, TOO_HARD),
        ),
        (5, 2, 2, 1),
    )[0]
    templates, answer = draw
    question = sentence_case(expand(rng.choice(templates), rng, _slots(rng)).strip())
    return [Exchange(punctuate(question), answer, "unknown", is_split=True)]


def unknown_in_a_row(rng: random.Random) -> list[Exchange]:
    """A capital that it knows, and then one that it does not know."""
    first = _CAPITALS.ask(rng, *rng.choice(_CAPITALS.pairs), _CAPITALS.wordings)
    question = expand(rng.choice(_CAPITALS.follow_ups), rng, {"x": _country(rng)})
    asked = Exchange(punctuate(sentence_case(question)), DONT_KNOW, "unknown", is_split=True)
    return [first, asked]


def nonsense(rng: random.Random) -> str:
    """A word that does not exist."""
    if rng.random() < 0.15:
        return "".join(rng.choice(_LETTERS) for _ in range(rng.randrange(3, 7)))
    syllables = rng.choice((1, 2, 2))
    return "".join(
        rng.choice(_STARTS) + rng.choice(_MIDDLES) for _ in range(syllables)
    ) + rng.choice(_ENDS)


def _slots(rng: random.Random) -> dict[str, str]:
    return {
        "country": _country(rng),
        "city": rng.choice(_CITIES),
        "name": person_name(rng),
        "thing": rng.choice(_THINGS),
        "topic": rng.choice(_TOPICS),
        "day": rng.choice(_DAYS),
        "nonsense": nonsense(rng),
        "year": str(rng.randrange(1500, 2030)),
        "big": str(rng.randrange(100, 10000)),
        "two": str(rng.randrange(11, 100)),
    }


def _country(rng: random.Random) -> str:
    """A country that the tables don't know, or one that nobody knows."""
    if rng.random() < 0.3:
        return nonsense(rng).title() + rng.choice(("ia", "land", "stan", "a", ""))
    return rng.choice(_OTHER_COUNTRIES)
