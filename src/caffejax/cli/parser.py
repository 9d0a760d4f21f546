"""An argument parser that reads flags as gflags does, reports all unknown flags, and lists each flag once."""

from __future__ import annotations

import argparse
import re
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..base.errors import did_you_mean

_NEGATIVE_NUMBER = re.compile(r"-(\d|\.\d)")
_TRUE_WORDS, _FALSE_WORDS = ("1", "t", "true", "y", "yes"), ("0", "f", "false", "n", "no")
_HELP_FLAGS, _HELP_ALL_FLAGS = (
    {dashes + name for dashes in ("-", "--") for name in names}
    for names in (("help", "helpshort"), ("help-all", "help_all", "helpfull"))
)
HIDDEN_TITLE = "limits on files from others"  # title of the group of flags that only --help-all shows
# glog's flags, which have no effect; the log always goes to stderr
_GLOG_SWITCHES = {"logtostderr", "alsologtostderr", "colorlogtostderr", "log_prefix", "stop_logging_if_full_disk"}
_GLOG_FLAGS = {"log_dir", "log_link", "v", "vmodule", "minloglevel", "stderrthreshold", "logbuflevel", "logbufsecs"} | {
    "max_log_size",
    "log_backtrace_at",
}

_PARSER_FLAGS = ("flagfile", "undefok")


class HelpFormatter(argparse.HelpFormatter):
    """A help formatter that shows one spelling of each flag.

    It also shows the flag's default value, unless this value is None, a boolean or empty.
    """

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"max_help_position": 33, **options})

    def _format_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any) -> str:
        if any(action.nargs == argparse.REMAINDER for action in actions):  # flags precede the remaining arguments
            return super()._format_usage(usage, actions, groups, prefix)
        positional_actions = [action for action in actions if not action.option_strings]
        required = [self._format_action_invocation(a) for a in actions if a.required and a.option_strings]
        return " ".join(
            [super()._format_usage(usage, positional_actions, [], prefix).rstrip(), *required, "[flags]\n\n"]
        )

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        flag = max(action.option_strings[:2], key=len)  # -h, --help; the others begin with --name, -name
        return flag if action.nargs == 0 else f"{flag} {self._format_args(action, action.dest.upper())}"

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help or ""
        hides_default = not action.option_strings or isinstance(action.default, bool) or "%(default)" in text
        if action.default in (None, "", (), argparse.SUPPRESS) or hides_default:
            return text
        return f"{text} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` with gflags' rules; its subparsers have the same class.

    A switch, which is a flag with the action "store_true", is also written `--name=value` or `--noname`, where value
    is 1, t, true, y, yes, 0, f, false, n or no, in upper or lower case. A flag takes the next argument, whatever it is,
    as its value. The value of a flag in `positional_flags` becomes the first positional argument. Flags may precede
    the command, and may follow other arguments up to `--`. `--flagfile` names files with a flag on each line, and
    `--undefok` names flags that need not exist. glog's flags are ignored, and those of `ignored_flags` with a line on
    stderr. All unknown flags and invalid values of switches are reported at once, before missing arguments.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": HelpFormatter, **options})
        self._positionals.title, self._optionals.title = "arguments", "flags"
        self.subparsers: dict[str, Parser] = {}  # by command
        self.positional_flags: set[str] = set()  # flags whose value is the first positional argument
        self.ignored_flags: set[str] = set()  # flags with a value that have no effect on this command
        self._shows_all_flags = False
        self._off_switches: set[str] = set()  # by dest
        self.words: list[str] = []  # the arguments that were parsed last, flags first, each as one word

    @property
    def spellings(self) -> set[str]:
        """The spellings of all flags, such as "--gpu" and "-gpu"."""
        return {spelling for action in self._actions for spelling in action.option_strings}

    def format_help(self) -> str:
        """Return the help text. It includes the flags of the group `HIDDEN_TITLE` only after `--help-all`."""
        limit_actions = [
            a for group in self._action_groups if group.title == HIDDEN_TITLE for a in group._group_actions
        ]
        command_actions = [
            a for a in self._actions if isinstance(a, argparse._SubParsersAction)
        ]  # the epilog lists them
        hidden_actions = [
            (action, action.help) for action in (*command_actions, *([] if self._shows_all_flags else limit_actions))
        ]
        for action, _ in hidden_actions:
            action.help = argparse.SUPPRESS
        text = super().format_help()
        for action, help_text in hidden_actions:
            action.help = help_text
        return f"{text}--help-all also lists {HIDDEN_TITLE}\n" if limit_actions and not self._shows_all_flags else text

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments. Unknown commands and flags are reported before missing arguments."""
        if args is not None:
            args = self._put_command_first(list(args)) if self.subparsers else self._put_flags_first(args)
            self.words = args
        namespace, unknown_words = super().parse_known_args(args, namespace)
        vars(namespace).update(dict.fromkeys(self._off_switches, False))
        return namespace, unknown_words

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with code 2. If no command is given, the message names `--help`."""
        help_hint = f"; see {self.prog} --help" if self.subparsers and "arguments are required" in message else ""
        super().error(message + help_hint)

    def _put_command_first(self, arguments: list[str]) -> list[str]:
        if arguments and arguments[0] in _HELP_FLAGS | _HELP_ALL_FLAGS:
            return ["--help"]
        words = [a for a in arguments if not a.startswith("-")]
        command = next((a for a in words if a in self.subparsers), None)
        if arguments and words[:1] != arguments[:1] and arguments[0] not in self.spellings and command:
            arguments.remove(command)
            return [command, *arguments]
        if words and words[0] not in self.subparsers:
            self.error(f"there is no command '{words[0]}'{did_you_mean(words[0], self.subparsers)}")
        return arguments

    def _put_flags_first(self, arguments: Sequence[str]) -> list[str]:
        """Return the arguments with all flags first, each as one word: `--name=value`, or `--name` for a switch."""
        has_remainder = any(action.nargs == argparse.REMAINDER for action in self._actions)  # for another program
        flags: list[str] = []
        switches: dict[str, str] = {}  # the switches that are on, by dest
        positionals: list[str] = []
        first_positional: list[str] = []  # the value of a flag of `positional_flags`
        problems: dict[str, str] = {}  # by the flag's name
        self._off_switches.clear()
        optional_flags: set[str] = set()  # flags that `--undefok` names
        queue, flag_files = deque(arguments), set[str]()
        while queue:
            argument = queue.popleft()
            flag, equals, value = argument.partition("=")
            name = flag.lstrip("-").replace("-", "_")
            if argument == "--" or (has_remainder and not argument.startswith("-")):
                positionals += [argument] * has_remainder + list(queue)
                break
            if len(flag) < 2 or not flag.startswith("-") or _NEGATIVE_NUMBER.match(flag):
                positionals.append(argument)
                continue
            action, is_on = self._find_action(flag)
            if flag in _HELP_FLAGS | _HELP_ALL_FLAGS:
                self._shows_all_flags = flag in _HELP_ALL_FLAGS
                flags.append("--help")
            elif name in self.positional_flags:
                if not (equals or queue):
                    self.error(f"{flag} needs a value: {flag}=FILE")
                first_positional = [value if equals else queue.popleft()]  # the last value overrides earlier ones
            elif isinstance(action, argparse._StoreTrueAction):
                if equals and is_on and value.lower() not in _TRUE_WORDS + _FALSE_WORDS:
                    problems[name] = f"{argument}: '{value}' is not true or false (or t, yes, y, 1, f, no, n, 0)"
                elif is_on and value.lower() not in _FALSE_WORDS:
                    switches[action.dest] = action.option_strings[0]
                    self._off_switches.discard(action.dest)
                else:
                    switches.pop(action.dest, None)
                    self._off_switches.add(action.dest)
            elif name in _GLOG_SWITCHES or name.removeprefix("no") in _GLOG_SWITCHES:
                continue
            elif action and action.nargs == 0:
                flags.append(argument)
            elif not equals and queue and (action or name in {*self.ignored_flags, *_GLOG_FLAGS, *_PARSER_FLAGS}):
                queue[0] = f"{flag}={queue[0]}"
            elif action:
                flags.append(argument)
            elif name == "undefok":
                optional_flags.update(part.lstrip("-").replace("-", "_") for part in value.split(","))
            elif name == "flagfile":
                queue.extendleft(reversed(self._read_flag_files(value, flag_files)))
            elif name in self.ignored_flags:
                print(f"{self.prog}: --{name} has no effect on this command", file=sys.stderr)
            elif name not in _GLOG_FLAGS:
                visible_spellings = [spelling for spelling in self.spellings if spelling.startswith("--")]
                visible_spellings += [f"--{word}" for word in self.positional_flags]
                hint = did_you_mean(flag, visible_spellings) or f"; `{self.prog} --help` lists the flags"
                problems[name] = f"there is no flag {flag}{hint}"
        messages = [
            text for name, text in problems.items() if optional_flags.isdisjoint((name, name.removeprefix("no")))
        ]
        if messages:
            self.error("; ".join(messages))
        positionals = first_positional + positionals
        if positionals and not has_remainder and not any(not action.option_strings for action in self._actions):
            self.error(f"{self.prog} takes no arguments, only flags, but was given {', '.join(positionals)}")
        return [*flags, *switches.values(), *["--"] * bool(positionals and not has_remainder), *positionals]

    def _find_action(self, flag: str) -> tuple[argparse.Action | None, bool]:
        """Return a flag's action, or None if the flag is unknown, and False for `--noNAME` of a switch, else True."""
        action = self._option_string_actions.get(flag)
        if action is None and (match := re.match("(--?)no(.+)", flag)):
            switch = self._option_string_actions.get(match[1] + match[2])
            if isinstance(switch, argparse._StoreTrueAction):
                return switch, False
        return action, True

    def _read_flag_files(self, names: str, read_names: set[str]) -> list[str]:
        """Return the lines with flags in the comma-separated files `names`; add their names to `read_names`."""
        lines: list[str] = []
        for name in names.split(","):
            if name in read_names:
                self.error(f"--flagfile={name}: the file has already been read")
            read_names.add(name)
            try:
                text = Path(name).read_text(errors="surrogateescape")
            except OSError as error:
                self.error(f"--flagfile={name}: the file cannot be read: {error.strerror}")
            lines += [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
        if invalid := next((line for line in lines if not line.startswith("-")), None):
            self.error(f"--flagfile={names}: '{invalid}' is not a flag of the form --name=value")
        return lines
