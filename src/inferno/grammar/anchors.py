"""Turn patterns with anchors, `^` and `$` anywhere, into trees without anchors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inferno.grammar.regex import (
    ANY_TEXT,
    EMPTY,
    MAX_DEPTH,
    MAX_NODES,
    NOTHING,
    Regex,
    Repeat,
    Seq,
    UnsupportedRegex,
    alt,
    can_be_empty,
    depth_of,
    repeat,
    seq,
    size_of,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a pattern, by where it stands.

    Its text may begin where the whole text does or later, and end where that ends or before;
    anchors care. With `^` or `$`, fewer texts match in the midst than at the ends, never others:
    the rules below rest on that.
    """

    inside: Regex
    at_end: Regex
    at_start: Regex
    as_whole: Regex
    has_anchors: bool = True

    def at(self, starts: bool, ends: bool) -> Regex:
        if starts:
            return self.as_whole if ends else self.at_start
        return self.at_end if ends else self.inside


START = Piece(NOTHING, NOTHING, EMPTY, EMPTY)
END = Piece(NOTHING, EMPTY, NOTHING, EMPTY)


def free(regex: Regex) -> Piece:
    """Return a piece without anchors, which is the same everywhere."""
    return Piece(regex, regex, regex, regex, has_anchors=False)


def sequence(pieces: list[Piece]) -> Piece:
    """Return the pieces one after the other."""
    whole: Piece | None = None
    run: list[Regex] = []
    for piece in pieces:
        if not piece.has_anchors:
            run.append(piece.inside)
            continue
        if run:
            whole = _pair(whole, free(seq(*run)))
            run = []
        whole = _pair(whole, piece)
    if run or whole is None:
        whole = _pair(whole, free(seq(*run)))
    return whole


def _pair(left: Piece | None, right: Piece) -> Piece:
    """Return one piece after the other: if one is empty, the other is at both places at once."""
    if left is None:
        return right

    def at(starts: bool, ends: bool) -> Regex:
        first, last = left.at(starts, False), right.at(False, ends)
        options = [seq(first, last)]
        if can_be_empty(first) and right.at(starts, ends) != last:
            options.append(right.at(starts, ends))
        if can_be_empty(last) and left.at(starts, ends) != first:
            options.append(left.at(starts, ends))
        if can_be_empty(left.at(starts, ends)) and can_be_empty(right.at(starts, ends)):
            options.append(EMPTY)
        return _union(options)

    return _in_all_places(at)


def choice(pieces: list[Piece]) -> Piece:
    """Return one of the pieces."""
    if len(pieces) == 1:
        return pieces[0]
    if not any(piece.has_anchors for piece in pieces):
        return free(alt(*(piece.inside for piece in pieces)))
    return _in_all_places(lambda starts, ends: alt(*(each.at(starts, ends) for each in pieces)))


def times(piece: Piece, least: int, most: int | None) -> Piece:
    """Return a piece so many times: the first may begin the text, the last may end it."""
    if not piece.has_anchors:
        return free(repeat(piece.inside, least, most))
    if most == 0:
        return free(EMPTY)

    def at(starts: bool, ends: bool) -> Regex:
        first, last = piece.at(starts, False), piece.at(False, ends)
        # One that is empty at either end can stand in for as many as are missing.
        fewest = 1 if can_be_empty(first) or can_be_empty(last) else max(least, 1)
        options = [piece.at(starts, ends)] if fewest == 1 else []
        if most is None or most >= 2:
            between = repeat(piece.inside, max(fewest, 2) - 2, None if most is None else most - 2)
            options.append(seq(first, between, last))
        if least == 0 or can_be_empty(piece.at(starts, ends)):
            options.append(EMPTY)
        return _union(options)

    return _in_all_places(at)


def _in_all_places(at: Callable[[bool, bool], Regex]) -> Piece:
    piece = Piece(at(False, False), at(False, True), at(True, False), at(True, True))
    # A part may stand in several of the options, and in several of those around them.
    for each in (piece.inside, piece.at_end, piece.at_start, piece.as_whole):
        if depth_of(each) > MAX_DEPTH or size_of(each) > MAX_NODES:
            raise UnsupportedRegex("a regular expression has too many anchors, or too deep in it")
    is_same = piece.inside == piece.at_end == piece.at_start == piece.as_whole
    return free(piece.inside) if is_same else piece


def _union(options: list[Regex]) -> Regex:
    """Return one of the options; the empty text only where none of the others can be empty."""
    others = [option for option in options if option != EMPTY]
    if any(map(can_be_empty, others)):
        return alt(*others)
    return alt(*options)


def found_in_text(piece: Piece) -> Regex:
    """Return the whole texts that have the piece somewhere in them."""
    inside = _needed(piece.inside)
    options = [seq(ANY_TEXT, *inside, ANY_TEXT) if inside else ANY_TEXT]
    if piece.at_start != piece.inside:
        options.append(seq(*_needed(piece.at_start, first=False), ANY_TEXT))
    if piece.at_end != piece.inside:
        options.append(seq(ANY_TEXT, *_needed(piece.at_end, last=False)))
    if piece.as_whole not in (piece.at_start, piece.at_end):
        options.append(piece.as_whole)
    return alt(*options)


def _needed(regex: Regex, *, first: bool = True, last: bool = True) -> list[Regex]:
    """Return a regex's parts without what any text before or after it makes superfluous."""
    if regex == NOTHING:
        return [NOTHING]
    parts = list(regex.parts if isinstance(regex, Seq) else (regex,))
    for index, is_open in ((0, first), (-1, last)):
        while is_open and parts and can_be_empty(parts[index]):
            del parts[index]
        if is_open and parts and isinstance(part := parts[index], Repeat):
            parts[index] = repeat(part.part, part.least, part.least)
    return parts
