"""``nsqsmart completion``: what the shell needs to complete commands and flags."""

from __future__ import annotations

import argparse

from nsqsmart.cli.common.parsing import Commands, Parser
from nsqsmart.errors import ConfigError

_ABOUT = """\
Print the completion for a shell: eval "$(nsqsmart completion bash)" in ~/.bashrc, or
nsqsmart completion zsh > ~/.zfunc/_nsqsmart. It needs the extra cli.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "completion", help="completion for bash or zsh", description=_ABOUT
    )
    parser.add_argument("shell", choices=("bash", "zsh"))
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Print it."""
    try:
        import shtab  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError("completion needs shtab: pip install 'nsqsmart[cli]'") from error
    from nsqsmart.cli import make_parser  # noqa: PLC0415 - it imports this

    print(shtab.complete(make_parser()[0], chosen.shell))
    return 0
