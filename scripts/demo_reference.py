"""What the embedded model is taught from inferno's own tables: options, commands, routes.

Nothing here is written down twice, so an option or a route that changes changes the corpus as well.
The server's packages must be installed (the extra `serve`), as its table of routes imports them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from demo_topic import Topic
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from inferno.cli.app import app
from inferno.cli.chat.commands import Commands
from inferno.option_table import OptionRow, table
from inferno.options import EngineOptions, ServerOptions, WorkerOptions
from inferno.server.routes import ROUTES, WORKER_ROUTES

_LONGEST_HELP = 90
_KNOWN_TO_ALL = ("--help", "--install-completion", "--show-completion")
_ASKED = (
    "what [does|is] {x}[| do| for| good for]",
    "what does {x} mean",
    "[explain|describe|tell me about|what about|how about|and] {x}",
    "what [is|'s] {x} [for|good for]",
    "how do I use {x}",
    "[can|could] you explain {x}",
    "{x}",
)


def reference() -> Iterator[Topic]:
    """A topic for each option, each of its facts, each command and each route."""
    yield from _commands()
    yield from _summaries()
    yield from _options()
    yield from _routes()


@cache
def command_line() -> TyperGroup:
    """The whole command line; to build it takes a tenth of a second, so it is built once."""
    return cast(TyperGroup, get_command(app))


def command_names() -> dict[str, TyperCommand]:
    """Every command by what is typed after `inferno`, those of groups with the group's name."""
    found: dict[str, TyperCommand] = {}
    for name, command in command_line().commands.items():
        if isinstance(command, TyperGroup):
            subs = command.commands.items()
            found |= {f"{name} {sub}": cast(TyperCommand, each) for sub, each in subs}
        else:
            found[name] = cast(TyperCommand, command)
    return found


def slash_commands() -> list[str]:
    """The commands of a chat, as they are typed."""
    return Commands(cast(Any, SimpleNamespace(params=None))).names


def _commands() -> Iterator[Topic]:
    names = list(dict.fromkeys(name.split()[0] for name in command_names()))
    yield Topic(
        f"The commands are inferno {_listed(names, 'and')}.",
        naming="[the|its|inferno's|all the|all] commands[| of inferno];the command line",
        asking=(
            "[what|which] commands [does inferno have|are there|do you have|does inferno know]",
            "[what|which] commands [can I use|can I type|can I run|exist|does it have]",
            "what are [the|its|your|inferno's|all the] commands[| of inferno]",
            "[list|name|show me|tell me|give me] [the|all|its|inferno's|all the] commands"
            "[| of inferno]",
            "how many commands [are there|does inferno have]",
            "what can I type in the shell",
        ),
    )
    yield Topic(
        f"In a chat you can type {_listed(slash_commands(), 'and')}.",
        naming="[the|all the|all] slash commands;the commands [of|in] [a|the] chat",
        asking=(
            "[what|which] commands does [inferno play|play|the chat] have",
            "what can I type in [inferno play|the chat|a chat|play]",
            "[what|which] slash commands [are there|does it have|can I use|exist]",
            "[list|name|show me|tell me] [the|all] slash commands",
            "[what|which] commands [are there|can I use|work] in [the chat|play|inferno play]",
        ),
    )


def _summaries() -> Iterator[Topic]:
    """Each command by what its own help says of it."""
    for name, command in command_names().items():
        about = _brief((command.help or "").partition("\n")[0].partition(". ")[0].rstrip(".") + ".")
        yield Topic(
            f"The command is: inferno {name} --help",
            asking=(
                f'[which|what] command [is for|does this|has the help|says]: "{about.rstrip(".")}"',
            ),
        )


def _options() -> Iterator[Topic]:
    rows = {
        row.flag: row
        for kind in (WorkerOptions, ServerOptions, EngineOptions)
        for row in table(kind).values()
        if not row.facts.is_python_only
    }
    for flag, about in _flags().items():
        yield Topic(f"{flag}: {_brief(about)}", asking=_asking(f"[|the option |option ]{flag}"))
        yield Topic(
            f"Use the option {flag}",
            asking=(
                f'[which|what] option [is for|means|says]: "{_brief(about).rstrip(".")}"',
                f'[which|what] option has the help "{_brief(about).rstrip(".")}"',
            ),
        )
        if flag in rows:
            yield from _facts(flag, rows[flag])


def _flags() -> Mapping[str, str]:
    """Each option of any command, in its longest spelling, and its help."""
    found: dict[str, str] = {}
    for command in command_names().values():
        for parameter in command.params:
            if isinstance(parameter, TyperOption) and parameter.help:
                flag = parameter.opts[0]
                if flag not in _KNOWN_TO_ALL:
                    found.setdefault(flag, parameter.help)
    return found


def _facts(flag: str, row: OptionRow) -> Iterator[Topic]:
    """An option's default, and what it may be."""
    facts = row.facts
    default = facts.absent or ("" if isinstance(row.default, bool | tuple) else row.default)
    if isinstance(default, str | int | float) and default != "":
        yield Topic(
            f"The default of {flag} is {default}.",
            asking=(
                f"what [is|'s] the [default|default value|standard] of {flag}",
                f"which value does {flag} have by default",
                f"{flag} default",
                f"what is {flag} if I do not set it",
            ),
        )
    if facts.choices:
        may_be = f"{flag} takes {_listed(facts.choices, 'or')}."
    elif row.kind in (int, float) and facts.low is not None:
        may_be = f"{flag} takes a number from {facts.low:g} to {facts.high:.12g}."
    else:
        return
    yield Topic(
        may_be,
        asking=(
            f"[which|what] values [does|can|may] {flag} [take|have]",
            f"what [can|may] {flag} be",
            f"what can I [set|give] {flag} to",
            f"what are the [values|choices|bounds] of {flag}",
        ),
    )


def _routes() -> Iterator[Topic]:
    paths = [route.path for route in ROUTES if not route.is_page and "{" not in route.path]
    yield Topic(
        f"The server's routes are {_listed(list(dict.fromkeys(paths)), 'and')}.",
        naming="[the|all the|all] [routes|endpoints|paths] of the server;the server's "
        "[routes|endpoints]",
        asking=(
            "[which|what] [routes|endpoints|paths|URLs] [are there|does the server have|can I "
            "call]",
            "list the [routes|endpoints][| of the server]",
        ),
    )
    for route in {route.path: route for route in (*WORKER_ROUTES, *ROUTES)}.values():
        if "{" in route.path or len(route.path) < 2:
            continue
        method = route.methods[0]
        yield Topic(
            f"{method} {route.path}: {route.summary}",
            asking=_asking(f"[|the route |{method} |the endpoint |route ]{route.path}"),
        )
        yield Topic(
            f"The route {method} {route.path}",
            asking=(
                f'[which|what] [route|endpoint|path|URL] [is for|gives|has]: "'
                f'{route.summary.rstrip(".")}"',
            ),
        )


def _asking(x: str) -> tuple[str, ...]:
    return tuple(wording.replace("{x}", x) for wording in _ASKED)


def _brief(about: str) -> str:
    """A help text, up to its first semicolon where it is long; no brackets, which would choose."""
    if len(about) > _LONGEST_HELP:
        about = about.partition(";")[0].rstrip(".") + "."
    return about.replace("[", "").replace("]", "").replace("|", " or ")


def _listed(items: list[str] | tuple[str, ...], last: str) -> str:
    *most, end = items
    return f"{', '.join(most)} {last} {end}" if most else end
