"""TLS profiles: client certificates and authorities of the operator, and their files when they change."""

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from angarium.delivery.http_exchange.transport import FailureKind, ProfileNames
from angarium.egress_settings import TlsSettings
from tests.contract.transport.conftest import answered, failed, post_to
from tests.contract.transport.egress.conftest import Egress
from tests.contract.transport.receiver import Receiver
from tests.support.waiting import until

PARTNER, PLAIN = ProfileNames(tls="partner"), ProfileNames(tls="plain")
Write = Callable[[str, bytes], str]


class Partner(Receiver):
    """Asks for a client certificate."""

    def __init__(self, authority: trustme.CA, *, required: bool = True) -> None:
        super().__init__()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        authority.issue_cert("hook.example").configure_cert(self.context)
        authority.configure_trust(self.context)

    @property
    def clients(self) -> list[str | None]:
        """The name in the certificate of each connection; None without one."""
        return [each["subjectAltName"][0][1] if each else None for each in self.certificates]


class Files:
    """The files of a client certificate, which a test can replace."""

    def __init__(self, authority: trustme.CA, write: Write) -> None:
        self._authority = authority
        self._write = write
        self.authorities = write("ca.pem", authority.cert_pem.bytes())
        self.replace("first.example")

    def replace(self, name: str, *, key: bool = True) -> None:
        """Write the certificate of that client; without `key` the old one stays, which does not fit."""
        issued = self._authority.issue_cert(name)
        self.certificate = self._write(
            "client.pem", b"".join(each.bytes() for each in issued.cert_chain_pems)
        )
        if key:
            self.key = self._write("client.key", issued.private_key_pem.bytes())

    @property
    def profiles(self) -> dict[str, TlsSettings]:
        with_certificate = TlsSettings(
            certificate=self.certificate, key=self.key, authorities=self.authorities
        )
        return {"partner": with_certificate, "plain": TlsSettings(authorities=self.authorities)}


@pytest.fixture
def files(authority: trustme.CA, write: Write) -> Files:
    return Files(authority, write)


@asynccontextmanager
async def listening(partner: Partner) -> AsyncIterator[str]:
    await partner.start(partner.context)
    yield f"https://hook.example:{partner.port}/"
    await partner.stop()


async def test_a_partner_that_wants_a_client_certificate_gets_it(
    egress: Egress, authority: trustme.CA, files: Files
) -> None:
    transport, partner = egress.transport(tls=files.profiles), Partner(authority)
    async with listening(partner) as url:
        answered(await post_to(transport, url, profiles=PARTNER))
        assert partner.clients == ["first.example"]
        without = failed(await post_to(transport, url, profiles=PLAIN))
        assert without.kind in (FailureKind.TLS, FailureKind.RESET)
        assert failed(await post_to(transport, url)).kind is FailureKind.TLS
        assert len(partner.requests) == 1


async def test_a_connection_with_a_client_certificate_serves_no_way_without_it(
    egress: Egress, authority: trustme.CA, files: Files
) -> None:
    transport, partner = egress.transport(tls=files.profiles), Partner(authority, required=False)
    async with listening(partner) as url:
        for profiles in (PARTNER, PLAIN, PARTNER, PLAIN):
            answered(await post_to(transport, url, profiles=profiles))
    assert partner.clients == ["first.example", None]


async def test_a_changed_certificate_is_used_for_all_requests_that_begin_later(
    egress: Egress, authority: trustme.CA, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.file_value.FILES_CHECKED_EVERY_S", 0.01)
    transport, partner = egress.transport(tls=files.profiles), Partner(authority)
    reloading = asyncio.create_task(egress.paths.reload_changed_files())
    async with listening(partner) as url:
        answered(await post_to(transport, url, profiles=PARTNER))
        before = egress.paths.path_for(PARTNER)
        files.replace("second.example")
        await until(lambda: egress.paths.path_for(PARTNER) is not before)
        answered(await post_to(transport, url, profiles=PARTNER))
    assert partner.clients[0] == "first.example"
    assert partner.clients[-1] == "second.example"
    reloading.cancel()


async def test_files_that_do_not_fit_leave_the_old_ones_in_use_and_are_logged_once(
    egress: Egress,
    authority: trustme.CA,
    files: Files,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("angarium.file_value.FILES_CHECKED_EVERY_S", 0.01)
    looks: list[str] = []
    stat = os.stat

    def counted(path: str) -> os.stat_result:
        looks.append(path)
        return stat(path)

    monkeypatch.setattr("angarium.file_value.os.stat", counted)
    transport, partner = egress.transport(tls=files.profiles), Partner(authority)
    reloading = asyncio.create_task(egress.paths.reload_changed_files())
    async with listening(partner) as url:
        files.replace("second.example", key=False)
        await until(lambda: "file.not_reloaded" in caplog.messages)
        seen = len(looks)
        await until(lambda: len(looks) > seen + 20)
        answered(await post_to(transport, url, profiles=PARTNER))
    assert partner.clients == ["first.example"]
    told = [vars(each) for each in caplog.records if each.message == "file.not_reloaded"]
    assert [(each["levelno"], each["setting"]) for each in told] == [(logging.WARNING, "tls.partner")]
    assert files.certificate not in caplog.text
    reloading.cancel()
