"""Arithmetic for the embedded model: the answers show the steps that a small model needs."""

from __future__ import annotations

import random
from collections.abc import Callable

from demo_exchange import Exchange, punctuate
from demo_grammar import expand, sentence_case, words
from demo_names import person_name
from demo_tables import NUMBER_WORDS

_COMPUTE: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
}
_SPOKEN = {"+": "[plus|and|added to|+]", "-": "[minus|take away|less|-]", "*": "[times|x|*|times]"}
_SPOKEN["/"] = "[divided by|/|over]"
_LEADS = (
    "[what is|what's|how much is|what does|calculate|compute|tell me|can you calculate|solve|]",
    "[what is|what's|how much is|please calculate|whats|do you know|please tell me|]",
    "[what is|what's|]",
)
_COMMANDS = {
    "+": "add {a} and {b};add {a} to {b};what is the sum of {a} and {b};the sum of {a} and {b}",
    "-": "subtract {b} from {a};take {b} away from {a};what is {a} less {b}",
    "*": "multiply {a} by {b};multiply {a} and {b};what is the product of {a} and {b}",
    "/": "divide {a} by {b}",
}
_AND_THEN = {
    "+": "[[and plus|plus|now add|add|and if I add|and add|now plus|then add|and then plus|+] {c}"
    "[| more|]|[now |please |then |and |]add {c} [|more ]to [that|it|this|the result|the sum]|"
    "[that|it|this] plus {c}|[what is|what's|how much is] [that|it|this] plus {c}|"
    "[what if I add|and if you add|increase it by|raise that by] {c}|and {c} more]",
    "-": "[[and minus|minus|now subtract|now take away|take away|subtract|and if I take away|"
    "now minus|then minus|and take away|-] {c}|[now |please |then |and |][take {c} away|"
    "subtract {c}|take away {c}|take {c}] from [that|it|this|the result|the sum]|[that|it|this] "
    "minus {c}|[what is|what's|how much is] [that|it|this] minus {c}|{c} less|"
    "[take {c} away|remove {c}|take {c} off|lower it by {c}|reduce that by {c}]]",
    "double": "[[now |please |then |and |][double|twice] [that|it|this|the result]|"
    "[double|twice] [that|it|this]|and twice that|and doubled|"
    "[what is|what's|how much is] [twice that|that doubled|double that|twice the result]|"
    "[that|it] times [two|2]|times [two|2]|multiply [that|it|this] by [two|2]]",
    "*": "[times {c}|and times {c}|[now |please |then |and |]multiply [that|it|this|the result] by "
    "{c}|[that|it|this] times {c}|[what is|what's|how much is] [that|it] times {c}]",
    "half": "[[now |please |then |and |][halve [that|it|this|the result]|divide [that|it] by "
    "[2|two]]|"
    "half of [that|it|this]|[what is|what's|how much is] half of [that|it|this]|and half of that]",
}
_THINGS = words("apples books coins balls cookies stickers pencils flowers eggs cards shells cakes")
_MORE = (
    "{name} has {a} {things} and gets {b} more. How many {things} does {name} have now",
    "{name} had {a} {things} and got {b} more. How many {things} does {name} have",
    "I have {a} {things}. I get {b} more. How many do I have",
    "{name} has {a} {things}. {name} finds {b} more. How many {things} does {name} have",
    "I have {a} {things} and buy {b} more. How many {things} do I have",
    "There are {a} red {things} and {b} blue {things}. How many {things} are there",
    "If I have {a} {things} and you give me {b} more, how many {things} do I have",
)
_FEWER = (
    "{name} has {a} {things} and loses {b}. How many {things} are left",
    "{name} has {a} {things} and gives away {b}. How many {things} does {name} have now",
    "I have {a} {things}. I eat {b}. How many are left",
    "{name} had {a} {things} and lost {b}. How many {things} are left",
    "I have {a} {things} and eat {b}. How many {things} do I have left",
    "There are {a} {things}. {name} takes {b}. How many {things} are left",
    "If I have {a} {things} and lose {b}, how many {things} do I have",
)


def one_digit(rng: random.Random) -> list[Exchange]:
    """A sum, difference, product or even quotient of two one-digit numbers."""
    a, b, sign = rng.randrange(10), rng.randrange(10), rng.choice("+++---**//")
    if sign == "/":
        b = b or 1
        a *= b
    return [_asked(rng, a, sign, b, "one-digit arithmetic" if sign != "/" else "division")]


def two_digits(rng: random.Random) -> list[Exchange]:
    """A sum or difference with a two-digit number, and the steps to its answer."""
    a = rng.randrange(10, 100)
    b = rng.choice((rng.randrange(10, 100), rng.randrange(10), 10 * rng.randrange(1, 10)))
    sign = rng.choice("+-")
    if rng.random() < 0.15 or (sign == "-" and a < b and rng.random() < 0.7):
        a, b = b, a
    return [_asked(rng, a, sign, b, "two-digit arithmetic")]


def three_numbers(rng: random.Random) -> list[Exchange]:
    """A sum of three one-digit numbers, one after the other."""
    a, b, c = (rng.randrange(1, 10) for _ in range(3))
    lead = expand(_LEADS[1], rng, {})
    space = rng.choice(("", " "))
    question = sentence_case(f"{lead} {space.join(f'{a} + {b} + {c}'.split())}".strip())
    answer = f"{a} + {b} = {a + b} and {a + b} + {c} = {a + b + c}, so the sum is {a + b + c}."
    return [Exchange(punctuate(question), answer, "three numbers", is_split=True)]


def sum_in_a_row(rng: random.Random) -> list[Exchange]:
    """A sum, and then more to be done with its result."""
    a, b = rng.randrange(10), rng.randrange(10)
    if rng.random() < 0.5:
        a = rng.randrange(10, 80)
        b = rng.choice((b, rng.randrange(10, 20)))
    sign = "-" if a >= b and rng.random() < 0.3 else "+"
    is_long = a >= 10
    if not is_long and rng.random() < 0.2:
        sign = "*"
    first = _asked(rng, a, sign, b, "two-digit arithmetic" if is_long else "one-digit arithmetic")
    total = _COMPUTE[sign](a, b)
    exchanges = [first]
    for _ in range(rng.choice((1, 1, 2))):
        how, sign, c = _then(total, rng)
        question = punctuate(sentence_case(expand(_AND_THEN[how], rng, {"c": str(c)})))
        exchanges.append(Exchange(question, worked(total, sign, c), "running sum"))
        total = _COMPUTE[sign](total, c)
    return exchanges


def _then(total: int, rng: random.Random) -> tuple[str, str, int]:
    """What may be done with a result: how it is asked for, and the sign and number of the sum."""
    hows = ["+", "+", "+", "-", "-", "-"]
    hows += ["double"] * (2 * (total < 100)) + ["*"] * (total < 10)
    hows += ["half"] * (total < 20 and total % 2 == 0)
    how = rng.choice(hows)
    if how == "double":  # by adding, which is what the model can do with two digits
        return (how, "*", 2) if total < 10 else (how, "+", total)
    if how == "half":
        return how, "/", 2
    c = rng.randrange(2, 10) if how == "*" else rng.randrange(1, 10)
    if how in "+-" and total >= 10 and rng.random() < 0.2:
        c = rng.randrange(10, 20)
    return ("+", "+", c) if how == "-" and c > total else (how, how, c)


def word_problem(rng: random.Random) -> list[Exchange]:
    """A little story about apples and the like."""
    a, b = rng.randrange(2, 11), rng.randrange(1, 10)
    sign = rng.choice("+-")
    if a <= b and sign == "-":
        a, b = b + 1, a
    slots = {"name": person_name(rng), "things": rng.choice(_THINGS), "a": str(a), "b": str(b)}
    if rng.random() < 0.25:
        slots |= {"a": NUMBER_WORDS[a], "b": NUMBER_WORDS[b]}
    question = rng.choice(_MORE if sign == "+" else _FEWER).format_map(slots) + "?"
    result = _COMPUTE[sign](a, b)
    things = slots["things"] if result != 1 else slots["things"].removesuffix("s")
    answer = f"{a} {sign} {b} = {result}, so the answer is {result} {things}."
    return [Exchange(question, answer, "word problem", is_split=True)]


def comparison(rng: random.Random) -> list[Exchange]:
    """Which of two numbers is bigger or smaller; doubles, halves, odd and even."""
    a, b = rng.sample(range(10) if rng.random() < 0.5 else range(100), 2)
    choice = rng.randrange(6)
    if choice < 2:
        question = f"[which|what] [number |one |]is [bigger|larger|greater|more], {a} or {b}"
        answer = f"{max(a, b)} is bigger than {min(a, b)}."
    elif choice == 2:
        question = f"[which|what] [number |one |]is [smaller|less], {a} or {b}"
        answer = f"{min(a, b)} is smaller than {max(a, b)}."
    elif choice == 3:
        question = f"is {a} [bigger|larger|greater|more] than {b}"
        says = "Yes" if a > b else "No"
        answer = f"{says}, {a} is {'bigger' if a > b else 'smaller'} than {b}."
    elif choice == 4:
        question = f"[is {a} even or odd|is {a} odd or even|is {a} an even number|is {a} odd]"
        answer = f"{a} is {'odd' if a % 2 else 'even'}."
    else:
        a = a % 10
        question, answer = rng.choice(
            (
                (f"[what is|what's] [double|twice|two times] {a}", f"Twice {a} is {2 * a}."),
                (f"[what is|what's] [half of|half] {2 * a}", f"Half of {2 * a} is {a}."),
            )
        )
    question = punctuate(sentence_case(expand(question, rng, {})))
    return [Exchange(question, answer, "comparison", is_split=True)]


def counting(rng: random.Random) -> list[Exchange]:
    """Count up, count down, or count from one number to another."""
    start, end = 1, rng.randrange(3, 21)
    if rng.random() < 0.3:
        start, end = sorted(rng.sample(range(1, 21), 2))
    numbers = list(range(start, end + 1))
    wording = "[count|please count|can you count] [|up ]to {end}" if start == 1 else ""
    wording = wording or "[count|please count|can you count] from {start} to {end}"
    if rng.random() < 0.25:
        start, numbers = 1, list(range(end, 0, -1))
        wording = "[count|please count|can you count] [down|backwards] from {end}[| to 1]"
    question = expand(wording, rng, {"start": str(start), "end": str(end)})
    answer = ", ".join(map(str, numbers)) + "."
    return [Exchange(punctuate(sentence_case(question)), answer, "counting", is_split=True)]


def worked(a: int, sign: str, b: int) -> str:
    """The answer to a sum: at once if one number is short or round, else in two steps.

    17 + 25 goes over 17 + 20 = 37; a negative difference goes over the other way round.
    """
    result = _COMPUTE[sign](a, b)
    if sign == "-" and result < 0 and max(a, b) >= 10:
        return f"{_steps(b, sign, a)}so {a} - {b} = {result}."
    steps = _steps(a, sign, b) if _is_long(a) and _is_long(b) and sign in "+-" else ""
    return f"{steps}so {a} {sign} {b} = {result}." if steps else f"{a} {sign} {b} = {result}."


def _steps(a: int, sign: str, b: int) -> str:
    if not (_is_long(a) and _is_long(b)):
        return f"{a} {sign} {b} = {_COMPUTE[sign](a, b)}, "
    tens, ones = b - b % 10, b % 10
    between = _COMPUTE[sign](a, tens)
    result = _COMPUTE[sign](between, ones)
    return f"{a} {sign} {tens} = {between} and {between} {sign} {ones} = {result}, "


def _is_long(number: int) -> bool:
    return number > 10 and number % 10 > 0


def _asked(rng: random.Random, a: int, sign: str, b: int, kind: str) -> Exchange:
    """A sum in one of its wordings, in signs or in words."""
    chance = rng.random()
    if chance < 0.15:
        wording = rng.choice(_COMMANDS[sign].split(";"))
        question = expand(wording, rng, {"a": str(a), "b": str(b)})
    else:
        in_words = chance > 0.85 and max(a, b) <= 20
        left, right = (NUMBER_WORDS[a], NUMBER_WORDS[b]) if in_words else (str(a), str(b))
        spoken = in_words or rng.random() < 0.4
        between = expand(_SPOKEN[sign], rng, {}) if spoken else sign
        space = "" if not in_words and between in "+-*/x" and rng.random() < 0.45 else " "
        lead = expand(rng.choice(_LEADS), rng, {})
        question = f"{lead} {left}{space}{between}{space}{right}".strip()
        question += " make" if lead == "what does" else ""
    question = sentence_case(question)
    if question[0].isdigit():
        question += rng.choice(("", "?", " = ?", " =", "="))
    else:
        question = punctuate(question)
    return Exchange(question, worked(a, sign, b), kind, is_split=True)
