"""sparc-dist completion."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from sparc_dist.cli.options import new_command

TEXT = """\
Prints what makes a shell complete commands and options of sparc-dist at the Tab key.

  bash  eval "$(sparc-dist completion bash)"       in ~/.bashrc
  zsh   eval "$(sparc-dist completion zsh)"        in ~/.zshrc, after compinit
  fish  sparc-dist completion fish | source        in ~/.config/fish/config.fish
"""
#: {first} is offered until a command is given, {cases} has the words of each.
BASH = """\
_sparc_dist() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} hidden='-*' i offered="{first}"
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in
{cases}
        esac
    done
    [[ $word == -* ]] && hidden=
    COMPREPLY=($(compgen -W "$offered" -X "$hidden" -- "$word"))
}}
complete -o default -F _sparc_dist sparc-dist
"""
BASH_CASE = '            {name}) offered="{words}"; break ;;'
ZSH = """\
_sparc_dist() {{
    local i
    local -a offered=({first})
    for ((i = 2; i < CURRENT; i++)); do
        case $words[i] in
{cases}
        esac
    done
    [[ $PREFIX == -* ]] || offered=(${{offered:#-*}})
    compadd -- $offered || _files
}}
compdef _sparc_dist sparc-dist
"""
ZSH_CASE = "            {name}) offered=({words}); break ;;"


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "completion", completion, "complete commands at the Tab key", TEXT)
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"))


def completion(options: argparse.Namespace) -> int:
    """Prints the completion of a shell."""
    from sparc_dist.cli.command_line import parser

    top = parser()
    (commands,) = (a.choices for a in top._actions if isinstance(a, argparse._SubParsersAction))
    first = [*commands, *_words(top)]
    words = {name: _words(command) for name, command in commands.items()}
    if options.shell == "bash":
        print(_script(BASH, BASH_CASE, first, words), end="")
    elif options.shell == "zsh":
        print(_script(ZSH, ZSH_CASE, first, words), end="")
    else:
        print("\n".join(_fish(first, words)))
    return 0


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """Returns the long options of a parser, and the choices of its arguments."""
    found: list[str] = []
    for action in parser._actions:
        if action.option_strings:
            found.append(action.option_strings[-1])
        elif not isinstance(action, argparse._SubParsersAction):
            found += action.choices or ()
    return found


def _script(script: str, case: str, first: Iterable[str], words: dict[str, list[str]]) -> str:
    cases = [case.format(name=name, words=" ".join(of)) for name, of in words.items()]
    return script.format(first=" ".join(first), cases="\n".join(cases))


def _fish(first: Iterable[str], words: dict[str, list[str]]) -> Iterable[str]:
    """Yields a line for each word."""
    conditions = {"__fish_use_subcommand": first}
    conditions |= {f"__fish_seen_subcommand_from {name}": of for name, of in words.items()}
    for condition, offered in conditions.items():
        for word in offered:
            kind = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            yield f"complete -c sparc-dist -n '{condition}' {kind}"
