"""Checks the stored secrets: whether they are sealed, with which keys, and whether these open them."""

from collections.abc import Collection, Mapping
from itertools import islice

from msgspec.structs import replace

from actors.errors import BadInput
from angarium.access import Access
from angarium.operations.installation.doctor.findings import READ_STATE, Finding, few, ok, problem, warning
from angarium.operations.installation.key import KeyUse, count_keys
from angarium.quantities import count_text
from streams.buckets.stored_configurations import KeysUsed
from streams.nats.retry import retry_for_command
from streams.sealing.documents import UNENCRYPTED

SHOWN_MAX = 10
_ROTATE = "angarium key rotate"


async def check_secrets(access: Access, misconfigured: Collection[str] = ()) -> list[Finding]:
    """Check the secrets of all receivers; `misconfigured`: those that no node can send to.

    Raises `Unavailable`.
    """
    try:
        access.keys()
    except BadInput as error:
        return [problem("secrets", str(error))]
    uses = await retry_for_command(access.configurations.key_uses)
    use = await count_keys(access, uses)
    unusable = _with_sealed_secrets(uses, misconfigured) if use.present is None else []
    return [*_sealed(use, unusable), *_unencrypted(use), *_unopened(use)]


def _with_sealed_secrets(uses: Mapping[str, KeysUsed], receivers: Collection[str]) -> list[str]:
    """The receivers among these whose secrets are sealed."""
    return sorted(each for each in receivers if each in uses and {*uses[each].keys} - {UNENCRYPTED})


def _sealed(use: KeyUse, unusable: list[str]) -> list[Finding]:
    if not use.receivers:
        return []
    text = f"secrets are sealed with {', '.join(f'{key} ({count})' for key, count in use.receivers.items())}"
    if unusable:
        text = f"{text}; no node sends to {few(unusable)}, perhaps because a key is missing"
        return [warning("secrets", text, READ_STATE, f"angarium inspect {unusable[0]}")]
    if use.present is None:
        return [ok("secrets", f"{text}; only with the key file doctor checks whether they open")]
    if older := sum(count for key, count in use.receivers.items() if key != use.present):
        remedy = f"seal them with {use.present}, before an older key leaves the file"
        return [warning("secrets", f"{text}; {older} of them not with the first key", remedy, _ROTATE)]
    return [ok("secrets", text)]


def _unencrypted(use: KeyUse) -> list[Finding]:
    if not use.unencrypted:
        return []
    text = f"NATS has unencrypted secrets of {count_text(len(use.unencrypted), 'receiver')}"
    if use.present is None and not use.required:
        return [ok("secrets", f"{text}; a key file seals them (docs/operating.md, Secrets at rest)")]
    return [warning("secrets", text, "seal them", _ROTATE)]


def _unopened(use: KeyUse) -> list[Finding]:
    findings = [
        replace(
            problem("secrets", f"the secrets of {name} cannot be opened: {'; '.join(why)}"),
            receiver=name,
            condition="misconfigured",
        )
        for name, why in islice(use.unopened.items(), SHOWN_MAX)
    ]
    if (more := len(use.unopened) - len(findings)) > 0:
        findings.append(problem("secrets", f"the secrets of {more} more receivers cannot be opened"))
    return findings
