"""`gausslens --print-completion SHELL`: a script that lets a shell complete commands and options."""

from collections.abc import Mapping, Sequence

from .parsing import usage_error

_SHELLS = ("bash", "zsh", "fish")
_BASH = """\
_gausslens() {{
  local words='{commands}'
  if ((COMP_CWORD > 1)); then
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _gausslens gausslens
"""


def completion(shell: str, options: Mapping[str, Sequence[str]]) -> str:
    """The script for a shell, from the options of each command; where none fits, the shell completes names of files."""
    if shell not in _SHELLS:
        usage_error("gausslens", f"--print-completion: expected one of {', '.join(_SHELLS)}; got {shell or 'none'}")
    if shell == "fish":
        return f"complete -c gausslens -n __fish_use_subcommand -f -a '{' '.join(options)}'\n" + "".join(
            f"complete -c gausslens -n '__fish_seen_subcommand_from {command}' -l {option.removeprefix('--')}\n"
            for command, names in options.items()
            for option in names
        )
    cases = "\n".join(f"      {command}) words='{' '.join(names)}' ;;" for command, names in options.items())
    script = _BASH.format(commands=" ".join(options), cases=cases)
    return script if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{script}"
