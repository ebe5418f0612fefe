"""``nsqsmart doctor``: which step to NSQ fails, and what to do about it."""

from __future__ import annotations

import argparse
import json
from typing import Any, NamedTuple

from nsqsmart import Admin, AdminConfig, NsqError
from nsqsmart.cli.common import flags
from nsqsmart.cli.common.parsing import Commands, Parser
from nsqsmart.config.addresses import Endpoint
from nsqsmart.errors import ConfigError
from nsqsmart.names import check_topic
from nsqsmart.terminal import RETRY_LATER, plural

_CLOCK = 30.0
_OLDEST = (1, 0)


_MISSING = "the nsqd wants a certificate of this client: give tls_cert and tls_key"
_TLS = {
    "alert certificate expired": "the certificate of this client, tls_cert, has expired: renew it",
    "certificate has expired": "the certificate of the nsqd has expired: renew it (its --tls-cert)",
    "not yet valid": "the certificate of the nsqd is not valid yet: compare the clocks, or renew "
    "it",
    "alert unknown ca": "the nsqd does not trust the certificate of this client: tls_cert must be "
    "issued by the authority in its --tls-root-ca-file",
    "certificate required": _MISSING,
    # What servers with TLS 1.2 say of a certificate that is missing.
    "alert handshake failure": "the nsqd ended the handshake: it may want a certificate of this "
    "client, tls_cert and tls_key, or another version of TLS",
    "alert bad certificate": _MISSING,
}
"""What the libraries say of a certificate, and what to do about it."""

_ABOUT = """\
Walk the way to NSQ step by step: lookups, the addresses they name, TCP, IDENTIFY, TLS, compression,
AUTH, and the topics. Says of the first thing that is wrong what to do. Exit code 0: all is well;
1: something is wrong; 75: nothing answered; 2: usage.
"""
NOT_NEEDED = "not needed"
_UNREACHED = ("resolve", "connect")


def hangs(program: str) -> str:
    """Advice for a server that takes connections and says nothing."""
    return (
        f"it takes connections and says nothing, so it hangs: look whether the {program} is "
        "stopped (SIGSTOP, a debugger, a frozen container) or the machine is out of memory, and "
        "restart it"
    )


def paused(topic: str, channel: str | None) -> str:
    """Advice for what delivers nothing because it was paused."""
    what = f"topic unpause {topic}" if channel is None else f"channel unpause {topic} {channel}"
    return f"it delivers nothing until it is unpaused: nsqsmart {what}"


def wrong_lookupd(probe: Any) -> str:
    """Advice for an address that was given as that of an nsqlookupd."""
    host, _, port = probe.address.rpartition(":")
    if probe.kind == "nsqd":
        return f"that is the HTTP port of an nsqd: use nsq://{host}:{probe.tcp_port or 4150}"
    if probe.kind == "other":
        return "something that is no nsqlookupd answers there: check host and port (4161)"
    if probe.silent:
        return hangs("nsqlookupd")
    if "refused" in probe.detail.lower():
        return f"nothing listens there: start nsqlookupd, or check the port {port} (HTTP is 4161)"
    if "resolved" in probe.detail:
        return "the name is unknown here: check it, or the DNS of this machine or container"
    return (
        f"it does not speak HTTP in time: {port} may be the TCP port of nsqlookupd (4160) or of "
        "an nsqd (4150); its HTTP port is 4161"
    )


def wrong_nsqd(step: str, detail: str, http: Any) -> str:
    """Advice for an nsqd whose step *step* failed; *http* is what speaks HTTP at its address."""
    host, _, _ = http.address.rpartition(":")
    if step == "resolve":
        return "the name is unknown here: check it, or the DNS of this machine or container"
    if step == "connect":
        return "nothing takes connections there: start nsqd, open the firewall, or check the port"
    if step == "identify" and http.kind == "nsqlookupd":
        return f"that is an nsqlookupd: use nsq+lookupd://{http.address}"
    if step == "identify" and http.kind == "nsqd":
        return f"that is the HTTP port of an nsqd: use its TCP port, nsq://{host}:" + str(
            http.tcp_port or 4150
        )
    if step == "identify" and not http.kind and "in time" in detail:
        return hangs("nsqd")
    if step == "identify":
        return "what answers there is no nsqd: check host and port (4150; 4160 is nsqlookupd's)"
    return _upgrades(step, detail)


def _upgrades(step: str, detail: str) -> str:
    if step == "tls" and "insists" in detail:
        return "the nsqd takes TLS alone: use nsqs:// or nsqs+lookupd://, with tls_root_ca_file"
    if step == "tls" and "not offer" in detail:
        return "the nsqd has no certificate: give it --tls-cert and --tls-key, or use nsq://"
    if step == "tls" and (known := next((k for k in _TLS if k in detail), None)):
        return _TLS[known]
    if step == "tls":
        return (
            "the certificate is not trusted, or not for this name: give tls_root_ca_file, and "
            "connect by a name that the certificate has"
        )
    if step == "auth" and "E_AUTH_FIRST" in detail:
        return "the nsqd asks for AUTH: give auth_secret (NSQSMART_AUTH_SECRET)"
    if step == "auth":
        return "the secret is refused, or the authority does not answer: check auth_secret"
    return f"the nsqd does not offer it: leave the option {step} out"


def advertised(nsqd: str) -> str:
    """Advice where the nsqlookupd answers, and the address that it names does not."""
    host = nsqd.rpartition(":")[0]
    return (
        f"the nsqlookupd answers, and the address {nsqd} that it names cannot be reached from "
        "here. Is nsqd in a container? Start it with --broadcast-address=HOST, a name or address "
        f"that clients reach; or translate in the client: address_map={{'{host}': 'HOST'}}"
    )


def odd_clock(skew: float | None) -> str:
    """Advice for a clock that is *skew* seconds ahead; empty if it is fine."""
    if skew is None or abs(skew) <= _CLOCK:
        return ""
    direction = "ahead of" if skew > 0 else "behind"
    return (
        f"its clock is {abs(skew):.0f} s {direction} this machine's: run NTP on both, or ages "
        "and start_at mislead and certificates may be refused"
    )


def old(version: str) -> str:
    """Advice for an old program; empty if it is fine."""
    numbers = version.split("-", maxsplit=1)[0].split(".")
    if "-HA." in version or not all(each.isdecimal() for each in numbers[:2]):
        return ""
    if tuple(map(int, numbers[:2])) >= _OLDEST:
        return ""
    return f"version {version} is older than 1.0: upgrade it, for lookups differ before that"


class Check(NamedTuple):
    """A step; *advice* says what to do where it is not ``ok``."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


class Doctor:
    """Walks from an address on; ``answered`` tells whether any server did."""

    def __init__(self, admin: Admin, address: str, topics: list[str]) -> None:
        self._admin = admin
        self._endpoint = Endpoint.parse(address)
        self._topics = topics
        self._direct = bool(self._endpoint.addresses) and not self._endpoint.discovers
        # Whether it is a redesigned one.
        self._lookups: dict[bool, list[str]] = {False: [], True: []}
        self._authorized = False
        self.checks: list[Check] = []
        self.answered = False

    def walk(self) -> None:
        """Every step that can be taken."""
        if self._endpoint.discovers:
            for address in self._endpoint.addresses:
                self._lookupd(str(address))
            if not self.answered:
                return
            if all(self._lookups.values()):
                original, redesigned = map(", ".join, self._lookups.values())
                advice = (
                    f"give the lookups of one cluster alone: {original} is of an original one and "
                    f"{redesigned} of a redesigned one, and what they answer does not go together"
                )
                self._add("lookups", "of both kinds", advice)
        for nsqd in map(str, self._endpoint.addresses) if self._direct else self._nodes():
            self._nsqd(nsqd)
        self._look_at_topics()

    def _add(self, name: str, detail: str, advice: str = "") -> None:
        self.checks.append(Check(name, not advice, detail, advice))

    def _lookupd(self, address: str) -> None:
        probe = self._admin.probe_http(address)
        name = f"lookup {address}"
        if probe.kind != "nsqlookupd":
            self.answered = self.answered or bool(probe.kind)
            self._add(name, probe.detail, wrong_lookupd(probe))
            return
        self.answered = True
        self._lookups["HA" in probe.version].append(address)
        self._add(name, probe.detail, old(probe.version))
        self._add(f"{name} listlookup", "yes" if probe.listlookup else "none: it is an original")
        clock = odd_clock(probe.skew)
        if probe.skew is not None:
            self._add(f"{name} clock", f"{probe.skew:+.0f} s", clock)

    def _nodes(self) -> list[str]:
        try:
            nodes = [node.nsqd for node in self._admin.nodes()]
        except NsqError as error:
            self._add("nsqds", str(error), "no nsqlookupd lists nsqds: see the steps before")
            return []
        missing = "no nsqd has registered: start nsqd with --lookupd-tcp-address=HOST:4160"
        self._add("nsqds", ", ".join(nodes) or "none", "" if nodes else missing)
        return nodes

    def _nsqd(self, nsqd: str) -> None:
        probe = self._admin.probe(nsqd)
        for step in probe.steps:
            advice = ""
            if not step.ok and step.name in _UNREACHED and not self._direct:
                advice = advertised(nsqd)
            elif not step.ok:
                advice = wrong_nsqd(step.name, step.detail, self._admin.probe_http(nsqd))
            self._add(f"nsqd {nsqd} {step.name}", step.detail or "ok", advice)
        self._authorized |= any(
            step.name == "auth" and step.ok and step.detail != NOT_NEEDED for step in probe.steps
        )
        reached = any(step.ok for step in probe.steps if step.name == "connect")
        self.answered = self.answered or reached
        if probe.version and (advice := old(probe.version)):
            self._add(f"nsqd {nsqd} version", probe.version, advice)

    def _look_at_topics(self) -> None:
        try:
            names = self._topics or self._admin.topics()
            for name in names:
                self._topic(name)
            self._look_for_paused(names)
        except ConfigError as error:
            # The HTTP address of a lone nsqd was not given.
            if not self._direct:
                self._add("topics", str(error), "look at the options")
        except NsqError as error:
            self._add("topics", str(error), "the lookups do not tell: see the steps before")

    def _topic(self, name: str) -> None:
        topology = self._admin.topology(name)
        if str(topology.state) == "unknown":
            self._add(
                f"topic {name}", "unknown", "no lookup knows it: create it, or check its name"
            )
            return
        missing = [
            number for number in range(topology.partition_num) if number not in topology.leaders
        ]
        count = topology.partition_num
        detail = plural(count, "partition") if count else "original"
        advice = f"partitions {missing} have no leader: is an nsqd down?" if missing else ""
        self._add(f"topic {name}", detail, advice)
        self._count_replicas(name)
        if self._authorized:
            for target in topology.targets:
                self._permission(name, target.name, target.partition)

    def _count_replicas(self, topic: str) -> None:
        """Whether every partition has as many copies as it should."""
        for each in self._admin.replicas(topic):
            if each.wanted > 1 and each.in_sync is not None:
                detail = f"{each.in_sync} of {each.wanted} in sync"
                advice = (
                    f"{each.in_sync} of {each.wanted} nodes have all of it: start the nsqd that is "
                    "missing, and restart no other one before all are in sync again, or accepted "
                    "messages may be lost"
                )
                name = f"topic {topic} partition {each.partition} replicas"
                self._add(name, detail, "" if each.complete else advice)

    def _permission(self, topic: str, nsqd: str, partition: int | None) -> None:
        """Whether the secret lets this client publish."""
        steps = self._admin.probe(nsqd, topic, partition).steps
        # Without the step it is the connection that fails, which is said above.
        for step in (each for each in steps if each.name == "publish"):
            where = "" if partition is None else f" partition {partition}"
            advice = f"nsqd refuses a publish to {topic}: {step.detail}"
            if "E_UNAUTHORIZED" in step.detail:
                advice = (
                    f"auth_secret does not permit to publish to {topic}: ask the authority for it"
                )
            self._add(f"topic {topic}{where} publish", step.detail, "" if step.ok else advice)

    def _look_for_paused(self, names: list[str]) -> None:
        """What delivers nothing although all is well."""
        for entry in self._admin.stats().topics:
            if entry.topic not in names:
                continue
            where = "" if entry.partition is None else f" partition {entry.partition}"
            if entry.paused:
                self._add(f"topic {entry.topic}{where}", "paused", paused(entry.topic, None))
            for each in entry.channels:
                if each.paused:
                    name = f"channel {entry.topic}/{each.channel}{where}"
                    self._add(name, "paused", paused(entry.topic, each.channel))


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "doctor", help="find out why it does not connect", description=_ABOUT
    )
    parser.add_argument("address", nargs="?", metavar="URL", help="the same as --url")
    parser.add_argument(
        "--topic", action="append", default=[], help="check only this topic; may be repeated"
    )
    flags.add_json(parser, "print one JSON object")
    flags.add_address(parser)
    flags.add_options(parser, AdminConfig)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Walk and print; see the exit codes above."""
    chosen.url = chosen.url or chosen.address
    address = flags.address_of(chosen)
    admin = Admin(address, **flags.client_options(chosen, AdminConfig))
    doctor = Doctor(admin, address, [check_topic(name) for name in chosen.topic])
    doctor.walk()
    wrong = [check for check in doctor.checks if not check.ok]
    if chosen.json:
        first = wrong[0].advice if wrong else None
        steps = [check._asdict() for check in doctor.checks]
        print(json.dumps({"ok": not wrong, "advice": first, "steps": steps}))
    else:
        _print(doctor.checks, wrong)
    if wrong and not doctor.answered:
        return RETRY_LATER
    return 1 if wrong else 0


def _print(checks: list[Check], wrong: list[Check]) -> None:
    for check in checks:
        print(f"{'ok    ' if check.ok else 'failed'} {check.name}: {check.detail}")
    if not wrong:
        print("\nall is well")
        return
    more = f"\n({len(wrong) - 1} more steps failed)" if len(wrong) > 1 else ""
    print(f"\nwhat to do about {wrong[0].name}: {wrong[0].advice}{more}")
