"""What to do about the step of ``nsqsmart doctor`` that failed."""

from __future__ import annotations

from typing import Any

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


def hangs(program: str) -> str:
    """Advice for a server that takes connections and says nothing."""
    return (
        f"it takes connections and says nothing, so it hangs: look whether the {program} is "
        "stopped (SIGSTOP, a debugger, a frozen container) or the machine is out of memory, and "
        "restart it"
    )


def mixed(original: list[str], redesigned: list[str]) -> str:
    """Advice for lookups of both kinds in one address."""
    return (
        f"give the lookups of one cluster alone: {', '.join(original)} is of an original one and "
        f"{', '.join(redesigned)} of a redesigned one, and what they answer does not go together"
    )


def not_permitted(topic: str, detail: str) -> str:
    """Advice for a topic that this client may not publish to."""
    if "E_UNAUTHORIZED" in detail:
        return f"auth_secret does not permit to publish to {topic}: ask the authority for it"
    return f"nsqd refuses a publish to {topic}: {detail}"


def incomplete(in_sync: int, wanted: int) -> str:
    """Advice for a partition that has fewer copies than it should."""
    return (
        f"{in_sync} of {wanted} nodes have all of it: start the nsqd that is missing, and restart "
        "no other one before all are in sync again, or accepted messages may be lost"
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
