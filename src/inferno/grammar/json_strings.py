"""Spell the texts of JSON's strings, and give the texts of a format.

A text has one spelling: a quote, a backslash and control characters are escaped, all others stand
for themselves. So what is known of a text (its length, a pattern, that it is none of some others)
holds of its spelling too, character by character. Only where all texts of a length are allowed may
other escapes stand, for then nothing depends on which character one is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import groupby

from inferno.grammar.regex import (
    ANY,
    ANY_TEXT,
    EMPTY,
    Alt,
    And,
    Chars,
    Not,
    Regex,
    Repeat,
    Seq,
    alt,
    both,
    char_set,
    chars,
    complement_of,
    literal,
    repeat,
    seq,
    without,
)
from inferno.grammar.syntax import parse_pattern

_MOST_FORKS = 40  # of a text in a list of them: a tree is not as deep as its longest text

_QUOTE = literal('"')
_SHORT = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_ESCAPES = {
    character: f"\\{_SHORT[character]}" if character in _SHORT else f"\\u{ord(character):04x}"
    for character in ('"', "\\", *map(chr, range(0x20)))
}
_ESCAPED = chars(*((ord(each), ord(each)) for each in _ESCAPES))


@lru_cache(maxsize=1024)
def spelled_string(text: Regex) -> Regex:
    """Return the spellings of the strings whose texts match an expression."""
    if isinstance(text, Repeat) and text.part == ANY:
        return seq(_QUOTE, repeat(_any_escape(), text.least, text.most), _QUOTE)
    return seq(_QUOTE, _spelled(text), _QUOTE)


def _spelled(text: Regex) -> Regex:
    match text:
        case Chars():
            return _character(text)
        case Seq(parts):
            return seq(*map(_spelled, parts))
        case Alt(options):
            return alt(*map(_spelled, options))
        case Repeat(part, least, most):
            return repeat(_spelled(part), least, most)
        case And(parts):
            return both(*map(_spelled, parts))
        case Not(part):
            return both(repeat(_character(ANY), 0, None), without(_spelled(part)))


@lru_cache(maxsize=1024)
def _character(some: Chars) -> Regex:
    """Return the spellings of one of these characters."""
    kept = _without_escaped(some)
    escapes = [
        literal(spelling)
        for character, spelling in _ESCAPES.items()
        if any(first <= ord(character) <= last for first, last in some.ranges)
    ]
    return alt(kept, *escapes)


def _without_escaped(some: Chars) -> Chars:
    return complement_of(chars(*complement_of(some).ranges, *_ESCAPED.ranges))


@cache
def _any_escape() -> Regex:
    """Return a character in any of JSON's spellings; those of surrogates only as pairs."""
    hexadecimal = char_set("0123456789abcdefABCDEF")
    low_surrogate = seq(
        literal("\\u"), char_set("dD"), char_set("cdefCDEF"), _times(hexadecimal, 2)
    )
    high_surrogate = seq(literal("\\u"), char_set("dD"), char_set("89abAB"), _times(hexadecimal, 2))
    basic = alt(
        seq(char_set("0123456789abcefABCEF"), _times(hexadecimal, 3)),
        seq(char_set("dD"), char_set("01234567"), _times(hexadecimal, 2)),
    )
    return alt(
        _without_escaped(ANY),
        seq(literal("\\"), char_set('"\\/bfnrt')),
        seq(literal("\\u"), basic),
        seq(high_surrogate, low_surrogate),
    )


def _times(part: Regex, times: int) -> Regex:
    return repeat(part, times, times)


def any_of(texts: Iterable[str]) -> Regex:
    """Return the expression of any of some texts, in which common beginnings are joined."""
    return _any_of(sorted(set(texts)), 0, 0)


def _any_of(texts: Sequence[str], start: int, depth: int) -> Regex:
    """Return the ends, from `start` on, of sorted texts that are the same before it."""
    if len(texts) < 2 or depth == _MOST_FORKS:
        return alt(*(literal(each[start:]) for each in texts))
    first, last = texts[0], texts[-1]
    same = (mine == theirs for mine, theirs in zip(first, last, strict=False))
    end = next((place for place, is_same in enumerate(same) if not is_same), len(first))
    forks: list[Regex] = [EMPTY] if len(texts[0]) == end else []
    rest = texts[1:] if forks else texts
    for _, group in groupby(rest, key=lambda each: each[end]):
        forks.append(_any_of(list(group), end, depth + 1))
    return seq(literal(texts[0][start:end]), alt(*forks))


# Formats.


@cache
def format_texts(name: str) -> Regex | None:
    """Return the texts of a format, or None if no format of this name is known."""
    return _FORMATS[name]() if name in _FORMATS else None


def known_formats() -> list[str]:
    """Return the names of the formats that are kept to."""
    return sorted(_FORMATS)


def _exactly(pattern: str) -> Regex:
    return parse_pattern(f"^(?:{pattern})$")


_DATE = (
    r"[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29"
)
_HOUR = "(?:[01][0-9]|2[0-3])"
_OFFSET = f"(?:[zZ]|[+-]{_HOUR}:[0-5][0-9])"
_FRACTION = r"(?:\.[0-9]{1,9})?"


def _date() -> Regex:
    # RFC 3339 has a year 0, but no program's calendar.
    return both(_exactly(_DATE), without(seq(literal("0000"), ANY_TEXT)))


def _time() -> Regex:
    """Return the times of RFC 3339; a second 60 only where it is 23:59 in UTC."""
    common = _exactly(f"{_HOUR}:[0-5][0-9]:[0-5][0-9]{_FRACTION}{_OFFSET}")
    return alt(common, _leap_seconds())


def _leap_seconds() -> Regex:
    """Return the times whose second is 60: where it is 23:59 in UTC."""
    universal = _exactly(f"23:59:60{_FRACTION}[zZ]")
    return alt(universal, _leap_second_at(1), _leap_second_at(-1))


def _leap_second_at(sign: int) -> Regex:
    """Return the times at offsets of one sign that are 23:59:60 in UTC."""
    before_sign = "[0-9:.]*"
    offset = "[+]" if sign > 0 else "-"
    minutes_agree = [
        f"{(59 + sign * minutes) % 60:02d}:60{before_sign}{offset}[0-9]{{2}}:{minutes:02d}"
        for minutes in range(60)
    ]
    hours_agree = []
    for hours in range(24):
        end = f"{before_sign}{offset}{hours:02d}"
        hours_agree.append(f"{(23 + sign * hours) % 24:02d}:{end}:{'00' if sign > 0 else '..'}")
        if sign > 0:  # 59 and any minutes but 0 make a further hour
            hours_agree.append(f"{hours:02d}:{end}:(?:0[1-9]|[1-5][0-9])")
    return both(
        _exactly(f"{_HOUR}:[0-5][0-9]:60{_FRACTION}{_OFFSET}"),
        _exactly("|".join(hours_agree)),
        _exactly(f"[0-9]{{2}}:(?:{'|'.join(minutes_agree)})"),
    )


def _date_time() -> Regex:
    return seq(_date(), char_set("Tt"), _time())


# RFC 4291, RFC 3986: groups of 16 bits, the last two perhaps as IPv4, "::" once for zeros.
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = "[0-9a-fA-F]{1,4}"
_LAST = f"(?:{_GROUP}:{_GROUP}|{_IPV4})"
_IPV6 = "|".join(
    [
        f"(?:{_GROUP}:){{6}}{_LAST}",
        *(
            f"(?:(?:{_GROUP}:){{0,{before - 1}}}{_GROUP})?::(?:{_GROUP}:){{{5 - before}}}{_LAST}"
            if before
            else f"::(?:{_GROUP}:){{5}}{_LAST}"
            for before in range(6)
        ),
        f"(?:(?:{_GROUP}:){{0,5}}{_GROUP})?::{_GROUP}",
        f"(?:(?:{_GROUP}:){{0,6}}{_GROUP})?::",
    ]
)

_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"
_ATOM = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL_PART = rf'{_ATOM}(?:\.{_ATOM})*|"(?:[ !#-\[\]-~]|\\[ -~])*"'


def _hostname() -> Regex:
    return both(_exactly(_HOSTNAME), repeat(ANY, 1, 253))


def _email() -> Regex:
    """Return RFC 5321's mailboxes, with its lengths."""
    local = both(_exactly(_LOCAL_PART), repeat(ANY, 1, 64))
    literals = _exactly(rf"\[(?:{_IPV4}|IPv6:(?:{_IPV6}))\]")
    return seq(local, literal("@"), alt(_hostname(), literals))


# RFC 3986, its names in capitals.
_PCT = "%[0-9a-fA-F]{2}"
_UNRESERVED_SUB_DELIMS = "[a-zA-Z0-9._~!$&'()*+,;=-]"
_PCHAR = f"(?:{_UNRESERVED_SUB_DELIMS}|{_PCT}|[:@])"
_IP_LITERAL = rf"\[(?:{_IPV6}|[vV][0-9a-fA-F]+\.(?:{_UNRESERVED_SUB_DELIMS}|:)+)\]"
_AUTHORITY = (
    f"(?:(?:{_UNRESERVED_SUB_DELIMS}|{_PCT}|:)*@)?"
    f"(?:{_IP_LITERAL}|(?:{_UNRESERVED_SUB_DELIMS}|{_PCT})*)(?::[0-9]*)?"
)
_PATH_ABEMPTY = f"(?:/{_PCHAR}*)*"
_PATH_ABSOLUTE = f"/(?:{_PCHAR}+{_PATH_ABEMPTY})?"
_QUERY_AND_FRAGMENT = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_URI = (
    f"[a-zA-Z][a-zA-Z0-9+.-]*:(?://{_AUTHORITY}{_PATH_ABEMPTY}"
    f"|{_PATH_ABSOLUTE}|{_PCHAR}+{_PATH_ABEMPTY}|){_QUERY_AND_FRAGMENT}"
)
_RELATIVE = (
    f"(?://{_AUTHORITY}{_PATH_ABEMPTY}|{_PATH_ABSOLUTE}"
    f"|(?:{_UNRESERVED_SUB_DELIMS}|{_PCT}|@)+{_PATH_ABEMPTY}|){_QUERY_AND_FRAGMENT}"
)

_POINTER = "(?:/(?:[^/~]|~[01])*)*"

# RFC 3339, appendix A: a unit may be followed by the next smaller one alone.
_DURATION_TIME = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DURATION = (
    f"P(?:(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)(?:{_DURATION_TIME})?"
    f"|{_DURATION_TIME}|[0-9]+W)"
)

_FORMATS: dict[str, Callable[[], Regex]] = {
    "date": _date,
    "time": _time,
    "date-time": _date_time,
    "duration": lambda: _exactly(_DURATION),
    "email": _email,
    "hostname": _hostname,
    "ipv4": lambda: _exactly(_IPV4),
    "ipv6": lambda: _exactly(_IPV6),
    "uri": lambda: _exactly(_URI),
    "uri-reference": lambda: _exactly(f"{_URI}|{_RELATIVE}"),
    "uuid": lambda: _exactly("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "json-pointer": lambda: _exactly(_POINTER),
    "relative-json-pointer": lambda: _exactly(f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})"),
}
