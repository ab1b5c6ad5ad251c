"""Read regular expressions in JSON Schema's notation (ECMA-262), and in Python's and Rust's.

Only what is regular is read: there are no backreferences. Anchors may stand anywhere; what they
say is worked out here, so that the trees are of whole texts and have none. A lookahead may stand
at the start only. Groups capture nothing, and lazy quantifiers match what greedy ones do.
"""

from __future__ import annotations

import string
import sys
import unicodedata
from dataclasses import dataclass
from functools import cache

from inferno.grammar.anchors import END, START, Piece, choice, found_in_text, free, sequence, times
from inferno.grammar.regex import (
    ANY,
    MAX_CODE_POINT,
    MAX_DEPTH,
    MAX_NODES,
    Chars,
    Regex,
    UnsupportedRegex,
    both,
    char_set,
    chars,
    complement_of,
    depth_of,
    size_of,
    without,
)

MAX_LENGTH = 20_000  # characters of a pattern
MAX_REPEATS = 10_000
MAX_GROUPS = 30  # one in another: each is up to three levels of a tree

_DIGITS = chars((ord("0"), ord("9")))
_WORD = chars(*((ord(a), ord(z)) for a, z in ("az", "AZ", "09", "__")))
_ASCII_SPACES = char_set(" \t\n\r\f\v")
# ECMA-262's white space and line ends.
_ECMA_SPACES = char_set(
    " \t\n\r\f\v\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
_ECMA_LINE_ENDS = char_set("\n\r\u2028\u2029")

_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}

_CATEGORY_NAMES = (
    "L=Letter Lu=Uppercase_Letter Ll=Lowercase_Letter Lt=Titlecase_Letter LC=Cased_Letter "
    "Lm=Modifier_Letter Lo=Other_Letter M=Mark Mn=Nonspacing_Mark Mc=Spacing_Mark "
    "Me=Enclosing_Mark N=Number Nd=Decimal_Number Nd=digit Nl=Letter_Number No=Other_Number "
    "P=Punctuation P=punct Pc=Connector_Punctuation Pd=Dash_Punctuation Ps=Open_Punctuation "
    "Pe=Close_Punctuation Pi=Initial_Punctuation Pf=Final_Punctuation Po=Other_Punctuation "
    "S=Symbol Sm=Math_Symbol Sc=Currency_Symbol Sk=Modifier_Symbol So=Other_Symbol "
    "Z=Separator Zs=Space_Separator Zl=Line_Separator Zp=Paragraph_Separator C=Other "
    "Cc=Control Cc=cntrl Cf=Format Co=Private_Use Cn=Unassigned M=Combining_Mark "
)
_SHORT_NAMES = dict(pair.split("=")[::-1] for pair in _CATEGORY_NAMES.split())


def parse_pattern(pattern: str) -> Regex:
    """Return the texts in which a JSON Schema's `pattern` finds something, as whole texts.

    The syntax is that of ECMA-262 with the flag u; what older patterns write is understood, too,
    where it has one meaning only: a brace that is no quantifier, a needless backslash before
    punctuation, a hyphen beside a class.
    """
    return _Parser(pattern, is_ecma=True).parse()


def parse_regex(pattern: str) -> Regex:
    """Return the texts that a pattern matches from start to end, in Python's and Rust's syntax.

    \\d, \\w and \\s are ASCII's, as with Python's flag for it; `.` is all but the line feed; `$` is
    the end of the text only.
    """
    return _Parser(pattern, is_ecma=False).parse()


@dataclass(slots=True)
class _Parser:
    """A pattern, and how far it has been read."""

    pattern: str
    is_ecma: bool
    position: int = 0
    groups: int = 0  # that are open

    def parse(self) -> Regex:
        if len(self.pattern) > MAX_LENGTH:
            raise UnsupportedRegex(
                f"a regular expression has {len(self.pattern)} characters; "
                f"at most {MAX_LENGTH} are allowed"
            )
        demands = self._lookaheads_at_start()
        piece = self._alternatives(is_single=bool(demands))
        if self.position < len(self.pattern):
            raise self._refusal("a closing parenthesis without an opening one")
        if demands:
            piece = sequence([START, piece])
        regex = found_in_text(piece) if self.is_ecma else piece.as_whole
        regex = both(*demands, regex) if demands else regex
        if depth_of(regex) > MAX_DEPTH or size_of(regex) > MAX_NODES:
            raise UnsupportedRegex(
                "a regular expression is too large or too deeply nested: "
                f"at most {MAX_NODES} parts and {MAX_DEPTH} levels are allowed"
            )
        return regex

    def _lookaheads_at_start(self) -> list[Regex]:
        """Read `^` and the lookaheads that follow it; return what each demands of whole texts."""
        start = self.position
        has_anchor = self._take("^") or (not self.is_ecma and self._take(r"\A"))
        demands = []
        while (has_anchor or not self.is_ecma) and self.pattern.startswith(
            ("(?=", "(?!"), self.position
        ):
            begin = self.position
            is_demanded = self.pattern[begin + 2] == "="
            self.position += 3
            inner = self._group(begin)
            found = found_in_text(sequence([START, inner]))
            demands.append(found if is_demanded else without(found))
        if not demands:
            self.position = start
        return demands

    def _alternatives(self, *, is_single: bool = False) -> Piece:
        options = [self._alternative()]
        while self._at("|"):
            if is_single:
                raise self._refusal("a lookahead in one of several alternatives")
            self.position += 1
            options.append(self._alternative())
        return choice(options)

    def _alternative(self) -> Piece:
        pieces = []
        while self.position < len(self.pattern) and self.pattern[self.position] not in "|)":
            begin = self.position
            piece = self._atom()
            bounds = self._quantifier()
            if bounds is not None:
                if self.pattern[begin] in "^$":
                    raise self._refusal("a quantifier of an anchor", begin)
                piece = times(piece, *bounds)
            pieces.append(piece)
        return sequence(pieces)

    def _atom(self) -> Piece:
        begin = self.position
        char = self.pattern[begin]
        self.position += 1
        match char:
            case "^":
                return START
            case "$":
                return END
            case ".":
                ends = _ECMA_LINE_ENDS if self.is_ecma else char_set("\n")
                return free(complement_of(ends))
            case "[":
                return free(self._class(begin))
            case "(":
                return self._opened(begin)
            case "*" | "+" | "?":
                raise self._refusal("a quantifier of nothing", begin)
            case "{":
                self.position = begin
                if self._quantifier() is not None:
                    raise self._refusal("a quantifier of nothing", begin)
                self.position = begin + 1
            case "\\":
                if not self.is_ecma and self._take("A"):
                    return START
                if not self.is_ecma and (self._take("Z") or self._take("z")):
                    return END
                return free(self._escape(begin, in_class=False))
        return free(self._literal(begin))

    def _opened(self, begin: int) -> Piece:
        """Read a group, whose opening parenthesis has been read."""
        if self._take("?"):
            if self._at("<=") or self._at("<!"):
                raise self._refusal("a lookbehind", begin)
            if self._at("=") or self._at("!"):
                raise self._refusal("a lookahead that isn't at the start, after `^`", begin)
            if self._take("<") or (not self.is_ecma and self._take("P<")):
                self._group_name(begin)
            elif self._at(">"):
                raise self._refusal("an atomic group", begin)
            elif self._at("P=") or self._at("P>"):
                raise self._refusal("a backreference", begin)
            elif self._at("("):
                raise self._refusal("a conditional group", begin)
            elif self._at("#"):
                raise self._refusal("a comment", begin)
            elif not self._take(":"):
                raise self._refusal("a flag, or a group of an unknown kind,", begin)
        return self._group(begin)

    def _group_name(self, begin: int) -> None:
        end = self.pattern.find(">", self.position)
        if end < 0 or not self.pattern[self.position : end].replace("$", "_").isidentifier():
            raise self._refusal("a group whose name is damaged", begin)
        self.position = end + 1

    def _group(self, begin: int) -> Piece:
        """Read what is in a group, and its closing parenthesis."""
        self.groups += 1
        if self.groups > MAX_GROUPS:
            raise self._refusal(f"a group in more than {MAX_GROUPS} others", begin)
        piece = self._alternatives()
        self.groups -= 1
        if not self._take(")"):
            raise self._refusal("a group without an end", begin)
        return piece

    def _quantifier(self) -> tuple[int, int | None] | None:
        """Read a quantifier; return None, and read nothing, if there is none."""
        begin = self.position
        bounds: tuple[int, int | None] | None = None
        for sign, meaning in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if bounds is None and self._take(sign):
                bounds = meaning
        if bounds is None:
            bounds = self._braces()
        if bounds is None:
            return None
        self._take("?")
        if self._at("*") or self._at("+") or self._at("?"):
            raise self._refusal("a quantifier of a quantifier")
        after = self.position
        if self._at("{"):
            if self._braces() is not None:
                raise self._refusal("a quantifier of a quantifier", after)
            self.position = after
        least, most = bounds
        if max(least, most or 0) > MAX_REPEATS:
            raise self._refusal(f"a number of repetitions above {MAX_REPEATS}", begin)
        if most is not None and most < least:
            raise self._refusal("a quantifier whose bounds are the wrong way round", begin)
        return bounds

    def _braces(self) -> tuple[int, int | None] | None:
        if not self._at("{"):
            return None
        end = self.pattern.find("}", self.position)
        text = self.pattern[self.position + 1 : end] if end >= 0 else ""
        least, comma, most = text.partition(",")
        digits = least + most
        if not digits or set(digits) - set(string.digits):
            return None
        if not least and self.is_ecma:
            raise self._refusal("a quantifier without a lower bound")
        # Counts of many digits are above all bounds: they aren't worth reading.
        first, last = (_number(each) for each in (least or "0", most or "0"))
        self.position = end + 1
        if not comma:
            return first, first
        return first, (last if most else None)

    def _class(self, begin: int) -> Chars:
        """Read a class, whose opening bracket has been read."""
        is_complement = self._take("^")
        ranges: list[tuple[int, int]] = []
        is_first = (
            not self.is_ecma
        )  # for which a closing bracket may be a member, if it's the first
        while is_first or not self._at("]"):
            if self.position >= len(self.pattern):
                raise self._refusal("a class without an end", begin)
            is_first = False
            self._refuse_set_operators()
            member = self._member()
            if self._at("-") and not self._at("-]"):
                hyphen = self.position
                if not self._at("--]"):
                    self._refuse_set_operators()
                self.position += 1
                if self.position >= len(self.pattern):
                    raise self._refusal("a class without an end", begin)
                self._refuse_set_operators()
                last = self._member()
                if _is_single(member) and _is_single(last):
                    if last.ranges[0][0] < member.ranges[0][0]:
                        raise self._refusal("a range whose ends are the wrong way round", hyphen)
                    ranges.append((member.ranges[0][0], last.ranges[0][0]))
                    continue
                ranges.append((ord("-"), ord("-")))
                ranges.extend(last.ranges)
            ranges.extend(member.ranges)
        self.position += 1
        some = chars(*ranges)
        return complement_of(some) if is_complement else some

    def _refuse_set_operators(self) -> None:
        """Refuse in classes what Rust takes for an operator on sets, and Python for characters."""
        if self.is_ecma:
            return
        for sign in ("[", "&&", "--", "~~", "||"):
            if self._at(sign):
                raise self._refusal(f"`{sign}` in a class, which needs a backslash,")

    def _member(self) -> Chars:
        begin = self.position
        self.position += 1
        if self.pattern[begin] == "\\":
            return self._escape(begin, in_class=True)
        return self._literal(begin)

    def _literal(self, begin: int) -> Chars:
        return self._character(ord(self.pattern[begin]), begin)

    def _character(self, code: int, begin: int) -> Chars:
        if 0xD800 <= code <= 0xDFFF:
            raise self._refusal("half of a surrogate pair, which no text has,", begin)
        if code > MAX_CODE_POINT:
            raise self._refusal("a number above that of the last character", begin)
        return chars((code, code))

    def _escape(self, begin: int, *, in_class: bool) -> Chars:
        """Read an escape, whose backslash has been read."""
        if self.position >= len(self.pattern):
            raise self._refusal("a backslash at the end", begin)
        char = self.pattern[self.position]
        self.position += 1
        spaces = _ECMA_SPACES if self.is_ecma else _ASCII_SPACES
        of_class = {"d": _DIGITS, "w": _WORD, "s": spaces}.get(char.lower())
        if of_class is not None:
            return of_class if char.islower() else complement_of(of_class)
        if char in "pP":
            return self._property(begin, is_complement=char == "P")
        if char in _CONTROLS:
            return char_set(_CONTROLS[char])
        if char == "b" and in_class:
            return char_set("\b")
        if char in "bB":
            raise self._refusal("a word boundary", begin)
        if char == "0" and not self._digits_follow():
            return char_set("\0")
        if char in string.digits or char == "k":
            raise self._refusal("a backreference or an octal number", begin)
        if char == "x":
            return self._character(self._hex(2, begin, braces=not self.is_ecma), begin)
        if char == "u":
            return self._character(self._utf16(begin), begin)
        if not self.is_ecma and char == "U":
            return self._character(self._hex(8, begin), begin)
        if not self.is_ecma and char == "a":
            return char_set("\a")
        if self.is_ecma and char == "c":
            return self._control(begin)
        if char in string.ascii_letters:
            raise self._refusal(f"the escape \\{char}", begin)
        return self._literal(self.position - 1)

    def _digits_follow(self) -> bool:
        return self.pattern[self.position : self.position + 1] in set(string.digits)

    def _control(self, begin: int) -> Chars:
        letter = self.pattern[self.position : self.position + 1]
        if letter not in set(string.ascii_letters):
            raise self._refusal("\\c without a letter", begin)
        self.position += 1
        return chars((ord(letter) % 32, ord(letter) % 32))

    def _hex(self, num_digits: int, begin: int, *, braces: bool = False) -> int:
        if braces and self._take("{"):
            end = self.pattern.find("}", self.position)
            digits = self.pattern[self.position : end] if end >= 0 else ""
            end += 1
        else:
            end = self.position + num_digits
            digits = self.pattern[self.position : end]
            if len(digits) < num_digits:
                digits = ""
        digits = digits.lstrip("0") or digits[:1]
        if not digits or len(digits) > 8 or set(digits) - set(string.hexdigits):
            raise self._refusal("a character's number that is damaged", begin)
        self.position = end
        return int(digits, 16)

    def _utf16(self, begin: int) -> int:
        """Read the number after \\u, and the second half if it is the first of a surrogate pair."""
        high = self._hex(4, begin, braces=True)
        if 0xD800 <= high < 0xDC00 and self._at(r"\u"):
            after = self.position
            self.position += 2
            low = self._hex(4, begin, braces=True)
            if 0xDC00 <= low <= 0xDFFF:
                return 0x10000 + (high - 0xD800) * 0x400 + (low - 0xDC00)
            self.position = after
        return high

    def _property(self, begin: int, *, is_complement: bool) -> Chars:
        if self._take("{"):
            end = self.pattern.find("}", self.position)
            name = self.pattern[self.position : end] if end >= 0 else ""
            self.position = end + 1
        else:
            name = "" if self.is_ecma else self.pattern[self.position : self.position + 1]
            self.position += 1
        if not self.is_ecma and name.startswith("^"):
            name = name[1:]
            is_complement = not is_complement
        for prefix in ("General_Category=", "gc="):
            name = name.removeprefix(prefix)
        name = _SHORT_NAMES.get(name, name)
        some = {"Any": ANY, "ASCII": chars((0, 127))}.get(name) or _categories().get(name)
        if some is None:
            raise self._refusal("a property that is no general category of Unicode", begin)
        return complement_of(some) if is_complement else some

    def _at(self, text: str) -> bool:
        return self.pattern.startswith(text, self.position)

    def _take(self, text: str) -> bool:
        if not self._at(text):
            return False
        self.position += len(text)
        return True

    def _refusal(self, construct: str, position: int | None = None) -> UnsupportedRegex:
        position = self.position if position is None else position
        near = self.pattern[position : position + 20]
        return UnsupportedRegex(
            f"{construct} at position {position} of a regular expression (`{near}`) isn't supported"
        )


def _number(digits: str) -> int:
    return int(digits) if len(digits) < 10 else MAX_REPEATS + 1


def _is_single(some: Chars) -> bool:
    return len(some.ranges) == 1 and some.ranges[0][0] == some.ranges[0][1]


@cache
def _categories() -> dict[str, Chars]:
    """Return the characters of each of Unicode's general categories, and of the groups of them."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    start, last = 0, unicodedata.category("\0")
    for code in range(1, sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category != last:
            ranges.setdefault(last, []).append((start, code - 1))
            start, last = code, category
    ranges.setdefault(last, []).append((start, sys.maxunicode))
    for category in list(ranges):
        ranges.setdefault(category[0], []).extend(ranges[category])
    ranges["LC"] = ranges["Lu"] + ranges["Ll"] + ranges["Lt"]
    return {category: chars(*some) for category, some in ranges.items() if category != "Cs"}
