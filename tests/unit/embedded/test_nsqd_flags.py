"""Flags of the stand-in for nsqd: each does what it says, or is refused."""

from __future__ import annotations

import ssl

import pytest
import trustme

from nsqsmart.embedded.nsqd.program import FLAGS, NsqdProgram, make_options
from nsqsmart.embedded.serving.flags import FlagError, parse
from nsqsmart.embedded.serving.program import read_flags


def options(*arguments):
    return make_options(parse(arguments, FLAGS))


def test_statistics_that_are_never_sent_are_refused(capsys):
    assert read_flags("nsqd", ["--statsd-address", "127.0.0.1:8125"], FLAGS) == 1
    said = capsys.readouterr().err
    assert "-statsd-address: this stand-in sends no statistics" in said
    assert said.count("\n") == 1


def test_the_ports_that_are_told(tmp_path):
    places = ("--tcp-address=:0", "--http-address=:0", f"--data-path={tmp_path}")
    told = ("--broadcast-tcp-port=7", "--broadcast-http-port=8")
    for flags, ports in (((), None), (told, (7, 8))):
        program = NsqdProgram(options(*places, *flags), ())
        program.start()
        node = program.nsqd.node
        found = node.introduction()
        program.stop()
        assert (found["tcp_port"], found["http_port"]) == (ports or (node.tcp_port, node.http_port))


def test_the_oldest_tls(tmp_path):
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    files = (f"--tls-cert={tmp_path / 'cert.pem'}", f"--tls-key={tmp_path / 'key.pem'}")
    context = options(*files, "--tls-min-version", "tls1.3").tls_context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    with pytest.raises(FlagError, match="tls-min-version: none of tls1.0, "):
        options("--tls-min-version=ssl3.0")
