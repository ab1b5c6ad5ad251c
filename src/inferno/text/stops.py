"""Find stop strings in a stream of text, holding back only what may still become one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache


class StopStrings:
    """A filter of text up to a stop string: the first to be complete, of several the longest.

    Which stop string is found depends on the text alone, not on how it is cut. The strings are
    sought together (Aho & Corasick, 1975), so the cost per character does not grow with their
    number or length, and what must be held back is known exactly: the longest end of the text so
    far that begins a stop string.

    include     whether the stop string itself passes too.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self._root = _automaton(tuple(stops))
        self._state = self._root
        self._include = include
        self._held = ""
        self._is_stopped = False

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to stop at, so that all text passes at once."""
        return not self._root.children

    def feed(self, text: str) -> tuple[str, str | None]:
        """Return the text that is safe to show, and the stop string that has just been completed.

        After a stop string nothing passes any more.
        """
        if self._is_stopped:
            return "", None
        if not self._root.children:
            return text, None
        seen = self._held + text
        for end, character in enumerate(text, start=len(self._held) + 1):
            self._state = self._state.after(character)
            if self._state.stop is not None:
                return self._cut(seen[:end], self._state.stop), self._state.stop
        num_safe = len(seen) - self._state.depth
        self._held = seen[num_safe:]
        return seen[:num_safe], None

    def finish(self) -> str:
        """Return the text that was held back, as no more text comes."""
        held, self._held = self._held, ""
        self._state = self._root
        return held

    def _cut(self, text: str, stop: str) -> str:
        self._is_stopped = True
        self._held = ""
        return text if self._include else text[: -len(stop)]


class _Node:
    """A beginning of stop strings, `depth` characters long.

    stop        the longest stop string that the text ends with here.
    fallback    the longest proper end of this beginning that is a beginning too.
    """

    __slots__ = ("children", "depth", "fallback", "stop")

    def __init__(self, depth: int) -> None:
        self.children: dict[str, _Node] = {}
        self.depth = depth
        self.fallback: _Node | None = None
        self.stop: str | None = None

    def after(self, character: str) -> _Node:
        node = self
        while character not in node.children:
            if node.fallback is None:
                return node
            node = node.fallback
        return node.children[character]


@lru_cache(maxsize=16)  # one for all sequences of a request: the largest take a few megabytes
def _automaton(stops: tuple[str, ...]) -> _Node:
    root = _Node(0)
    for stop in stops:
        node = root
        for character in stop:
            node = node.children.setdefault(character, _Node(node.depth + 1))
        node.stop = stop
    _link(root)
    return root


def _link(root: _Node) -> None:
    # Breadth first: a node's fallback is shorter, hence linked before it.
    queue = deque([root])
    while queue:
        parent = queue.popleft()
        for character, node in parent.children.items():
            node.fallback = root if parent.fallback is None else parent.fallback.after(character)
            node.stop = node.stop or node.fallback.stop
            queue.append(node)
