"""`devlint completions SHELL`: what a shell needs to complete devlint's commands, options and rules."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from devlint.options import CHECK, Option, UsageError, nearest

SHELLS = ("bash", "zsh", "fish")
_RULE_LISTS = ("select", "extend-select", "ignore")


def completions(argv: Sequence[str], commands: Sequence[str]) -> int:
    """Print the script for one of `SHELLS`; the exit code."""
    if len(argv) != 1 or argv[0] not in SHELLS:
        hint = nearest(argv[0], SHELLS) if argv else ""
        raise UsageError(f"devlint completions takes one of {', '.join(SHELLS)}{hint}")
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[argv[0]]
    sys.stdout.write(script(commands))
    return 0


def _rules() -> list[str]:
    from devlint.checks import rules

    return [word for code, rule in rules().items() for word in (code, rule.name)]


def _values(option: Option) -> list[str]:
    """What may follow an option, where that is known."""
    return ["ALL", *_rules()] if option.name in _RULE_LISTS else list(option.choices)


def _bash(commands: Sequence[str]) -> str:
    cases = "".join(
        f'        --{option.name}) COMPREPLY=($(compgen -W "{" ".join(_values(option))}" -- "$word")); return;;\n'
        for option in CHECK
        if _values(option)
    )
    options = " ".join(f"--{option.name}" for option in CHECK)
    return f"""\
# devlint completions bash > ~/.local/share/bash-completion/completions/devlint
_devlint() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{" ".join(commands)}" -- "$word")); return
    fi
    if [ "${{COMP_WORDS[1]}}" = rule ]; then
        COMPREPLY=($(compgen -W "--all {" ".join(_rules())}" -- "$word")); return
    fi
    case "$before" in
{cases}    esac
    if [ "${{COMP_WORDS[1]}}" = check ] && [ "${{word#-}}" != "$word" ]; then
        COMPREPLY=($(compgen -W "{options}" -- "$word"))
    fi
}}
complete -o default -F _devlint devlint
"""


def _zsh(commands: Sequence[str]) -> str:
    bash = _bash(commands).split("\n", 1)[1]
    head = "# devlint completions zsh, to be read by ~/.zshrc: source <(devlint completions zsh)\n"
    return head + "autoload -Uz bashcompinit && bashcompinit\n" + bash


def _fish(commands: Sequence[str]) -> str:
    lines = ["# devlint completions fish > ~/.config/fish/completions/devlint.fish"]
    lines.append(f"complete -c devlint -n __fish_use_subcommand -f -a '{' '.join(commands)}'")
    lines.append(f"complete -c devlint -n '__fish_seen_subcommand_from rule' -f -a '{' '.join(_rules())}'")
    for option in CHECK:
        needs = "" if option.kind in ("flag", "optional") else " -r"
        values = f" -f -a '{' '.join(_values(option))}'" if _values(option) else ""
        text = option.help.replace("\\", "\\\\").replace("'", "\\'")
        seen = "-n '__fish_seen_subcommand_from check'"
        lines.append(f"complete -c devlint {seen} -l {option.name}{needs}{values} -d '{text}'")
    return "\n".join([*lines, ""])
