"""What is promised of flags: each does what it says."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CLI = "tests/rooms/cli/test_flag_effects.py"
_COMMANDS = "nsqsmart/contrib/django/management/commands"
_DJANGO = "tests/rooms/contrib/django/test_command_flags.py"
_FLASK = "tests/rooms/contrib/flask/test_command_flags.py"
_LOOKING = "tests/rooms/cli/test_looking.py"

ROOMS: tuple[Mutant, ...] = (
    Mutant(
        "what-is-permanent-may-come",
        "nsqsmart/terminal.py",
        'later and not getattr(error, "permanent", False)',
        "later",
        "an error that stays is exit code 1, not 75, in every program",
        ("tests/unit/test_terminal.py",),
    ),
    Mutant(
        "a-class-of-errors-is-final",
        "nsqsmart/terminal.py",
        "kind = error if isinstance(error, type) else type(error)",
        "kind = type(error)",
        "an error that a Spark task names has its exit code",
        ("tests/unit/test_terminal.py",),
    ),
    Mutant(
        "signals-stay-told",
        "nsqsmart/terminal.py",
        "signal.signal(number, signal.SIG_DFL if previous is None else previous)",
        "pass",
        "handlers of signals come back when a program no longer needs its own",
        ("tests/unit/test_terminal.py",),
    ),
    Mutant(
        "a-line-moves-in-a-pipe",
        "nsqsmart/terminal.py",
        "self.live = not off and is_watched(stream)",
        "self.live = not off",
        "nothing moves in a pipe, or with NO_COLOR",
        ("tests/unit/test_terminal.py",),
    ),
    Mutant(
        "a-partition-of-an-id-is-elsewhere",
        "nsqsmart/spark/report/lines.py",
        "PARTITION_SHIFT: Final = 50",
        "PARTITION_SHIFT: Final = 49",
        "a line of a channel has the partition that its internal id names",
        ("tests/rooms/cli/test_trace.py",),
    ),
    Mutant(
        "an-interrupt-of-a-command-is-0",
        "nsqsmart/cli/common/ending.py",
        "        return INTERRUPTED\n",
        "        return 0\n",
        "a command that a signal ended has exit code 130",
        ("tests/rooms/cli/test_ending.py",),
    ),
    Mutant(
        "a-lock-that-no-table-has",
        "nsqsmart/client/publishing/retry.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nimport threading\n\n_lock = threading.Lock()\n",
        "docs/architecture.md has every lock",
        ("tests/architecture/test_page.py",),
    ),
    Mutant(
        "an-option-that-is-none",
        "nsqsmart/config/resolve.py",
        'return f"unknown option {shown}" + (',
        'return f"{shown} is no option" + (',
        "an unknown option is called that",
        ("tests/architecture/test_words.py",),
    ),
    Mutant(
        "a-name-that-is-stable-no-more",
        "nsqsmart/contrib/flask/__init__.py",
        '__all__ = ["NSQ", "publish_failed"]',
        '__all__ = ["NSQ"]',
        "integrations export what the reference calls stable",
        ("tests/architecture/test_exports.py",),
    ),
    Mutant(
        "a-citation-of-nothing",
        "nsqsmart/wire/commands.py",
        "(protocol#partition-token)",
        "(protocol#tokens)",
        "what the code cites is in docs/",
        ("tests/architecture/test_citations.py",),
    ),
    Mutant(
        "an-import-that-is-not-drawn",
        "nsqsmart/client/admin/operations.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nimport nsqsmart.client.messages.results\n",
        "the picture of the rooms is that of the code",
        ("tests/architecture/test_picture.py",),
    ),
    Mutant(
        "a-citation-of-a-document-elsewhere",
        "nsqsmart/wire/receipts.py",
        "(protocol#pub_trace)",
        "(protocol 2.13)",
        "no docstring cites what is not in the repository",
        ("tests/architecture/test_citations.py",),
    ),
    Mutant(
        "an-option-no-type-checker-knows",
        "nsqsmart/config/keywords.py",
        "    pool_size: int\n",
        "",
        "type checkers know every option of the table",
        ("tests/architecture/test_options.py",),
    ),
    Mutant(
        "an-admin-fails-to-publish",
        "nsqsmart/client/admin/requests.py",
        "from nsqsmart.errors import ConfigError, DiscoveryError, NotSupported, TopicNotExist",
        "from nsqsmart.client.shared.errors import TopicNotExist\n"
        "from nsqsmart.errors import ConfigError, DiscoveryError, NotSupported",
        "where nothing is published no error is a PublishError",
        (
            "tests/integration/test_admin.py"
            "::test_where_nothing_is_published_no_error_is_a_publish_error",
        ),
    ),
    Mutant(
        "the-seed-is-ignored",
        "nsqsmart/cli/commands/demo.py",
        "random.Random(chosen.seed)",
        "random.Random(7)",
        "demo --seed decides on keys and failures",
        (f"{_CLI}::test_the_seed_of_the_demo_decides_on_keys_and_failures",),
    ),
    Mutant(
        "a-bar-in-plain-lines",
        "nsqsmart/cli/commands/demo.py",
        "Printer(plain=chosen.plain, silent=chosen.json)",
        "Printer(plain=False, silent=chosen.json)",
        "demo --plain moves no bar",
        (f"{_CLI}::test_plain_lines_have_no_moving_bar",),
    ),
    Mutant(
        "one-nsqd-whatever-is-told",
        "nsqsmart/cli/commands/server.py",
        "chosen.nsqds = chosen.nsqds or chosen.replicas",
        "chosen.nsqds = chosen.replicas",
        "server --nsqds says how many",
        (f"{_CLI}::test_a_server_has_as_many_nsqds_as_it_is_told",),
    ),
    Mutant(
        "a-failed-start-saves-last",
        "nsqsmart/cli/commands/server.py",
        "stack.close()",
        "pass",
        "server --data-path keeps what it has, also if it had to take other ports",
        (f"{_LOOKING}::test_a_port_that_is_taken_costs_nothing_that_is_kept",),
    ),
    Mutant(
        "gzip-as-it-pleases",
        "nsqsmart/cli/files/appended.py",
        "gzip.compress(data, self._gzip_level)",
        "gzip.compress(data)",
        "to-file --gzip-level says how hard to try",
        (f"{_CLI}::test_gzip_takes_as_much_trouble_as_it_is_told",),
    ),
    Mutant(
        "django-workers-are-ignored",
        "nsqsmart/contrib/shared/running.py",
        "**declared.options, **own}",
        "**own, **declared.options}",
        "nsq_consume --workers says how many threads a handler has",
        (f"{_DJANGO}::test_workers_are_as_many_as_the_command_says",),
    ),
    Mutant(
        "django-consumes-of-every-alias",
        f"{_COMMANDS}/nsq_consume.py",
        'alias=options["alias"],',
        "alias=None,",
        "nsq_consume --alias chooses the handlers",
        (f"{_DJANGO}::test_only_the_handlers_of_an_alias_run",),
    ),
    Mutant(
        "django-pings-every-alias",
        f"{_COMMANDS}/nsq_ping.py",
        'names = [options["alias"]] if options["alias"] else list(conf.read_aliases())',
        "names = list(conf.read_aliases())",
        "nsq_ping --alias asks the servers of that one only",
        (f"{_DJANGO}::test_only_the_servers_of_an_alias_are_asked",),
    ),
    Mutant(
        "an-async-view-holds-up-the-loop",
        "nsqsmart/contrib/django/publishing.py",
        "await sync_to_async(publish)(topic, body, **arguments)",
        "publish(topic, body, **arguments)",
        "apublish leaves the event loop to others",
        (
            "tests/rooms/contrib/django/test_publish.py"
            "::test_an_async_view_leaves_the_loop_to_others",
        ),
    ),
    Mutant(
        "flask-workers-are-ignored",
        "nsqsmart/contrib/flask/commands.py",
        'shift.add(each, around(state.app, each), state.settings, options["workers"])',
        "shift.add(each, around(state.app, each), state.settings, None)",
        "flask nsq consume --workers says how many threads a handler has",
        (f"{_FLASK}::test_workers_are_as_many_as_the_command_says",),
    ),
    Mutant(
        "flask-consumes-of-every-channel",
        "nsqsmart/contrib/flask/commands.py",
        'choose(handlers, topic=options["topic"], channel=options["channel"])',
        'choose(handlers, topic=options["topic"], channel=None)',
        "flask nsq consume --channel chooses the handlers",
        (f"{_FLASK}::test_only_the_handlers_of_a_channel_run",),
    ),
    Mutant(
        "the-port-of-a-killed-server-is-anybodys",
        "nsqsmart/embedded/serving/listening.py",
        "self._kept.append(_bound(listener.address))",
        "_bound(listener.address).close()",
        "a server that was killed comes back on its port",
        ("tests/integration/embedded/test_nodes.py",),
    ),
)
