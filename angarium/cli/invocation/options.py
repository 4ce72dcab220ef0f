"""The flags that set settings, made from the settings themselves, so that names and texts cannot differ.

A command takes them as keywords of the settings' names and hands them to `settings_of`. Values are texts
here: the settings convert and check them, from every source.
"""

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
import msgspec

from angarium import logs, settings
from angarium.quantities import BadQuantity
from angarium.settings import FILE_SETTINGS, Settings
from angarium.terminal import output

log = logging.getLogger(__name__)

QUIET = {"log_level": "error"}
DEV_DIRECTORY = ".angarium"
"""The directory of `angarium dev`, unless another one is given."""

Command = TypeVar("Command", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

LOGS = ("log_format", "log_level")
CONNECTION = ("nats", "creds", "nkey", "tls_ca", "tls_cert", "tls_key", "prefix", "inbox_prefix")
SEALING = ("key_file",)
INSTALLATION = ("shards", "replicas", "max_body", "max_bytes")
EDGE = ("allow_http", "allow_networks", "deny_networks")
NODE = (
    "node", "ttl_s", "drain_s", "replay_keep_s", *SEALING, *EDGE, "allow_direct", "transport", "origin",
    "default_rate", "default_burst", "answer_inboxes", "monitor", "metrics_names", "trace_failures",
)  # fmt: skip

_METAVARS = {
    "nats": "URL[,URL]", "allow_networks": "NETWORK", "deny_networks": "NETWORK", "answer_inboxes": "PREFIX",
}  # fmt: skip
VARIABLE_MAX = 43
"""Columns in which help shows a variable and its default; in a longer text it could only break a word."""


def settings_flags(*names: str) -> Callable[[Command], Command]:
    """Gives a command the flags of these settings, `--config` and those of the logs."""

    def decorate(command: Command) -> Command:
        options = [_option(name) for name in (*names, *LOGS)]
        options.append(
            click.option("--config", metavar="FILE", help="Settings file [ANGARIUM_CONFIG=./angarium.toml].")
        )
        return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)

    return decorate


def quantity(
    flag: str, read: Callable[Concatenate[str, P], T], text: str, *more: P.args, **by: P.kwargs
) -> T:
    """The value of a flag, as `read` reads it. Raises BadQuantity, which names the flag."""
    try:
        return read(text, *more, **by)
    except BadQuantity as error:
        raise BadQuantity(f"{flag}: {error}") from None


def settings_of(given: dict[str, Any], **usual: Any) -> Settings:
    """The settings under which a command runs; `usual` are its defaults.

    From now on logs have the form that they name. For a short command, the line that says why it failed is
    enough; long-running commands pass a `usual` log level of their own.
    """
    names = {"config", *(each.name for each in msgspec.structs.fields(Settings))}
    said = {name: value for name, value in given.items() if name in names}
    loaded = settings.load(said, usual=QUIET | _nats_here() | usual)
    logs.configure(loaded.log_format, loaded.log_level)
    for unknown in settings.unknown_variables():
        if loaded.log_format == "json":
            log.warning("settings.unknown", extra={"variable": unknown.name, "meant": unknown.meant})
        else:
            output.note(f"note: {unknown}")
    return loaded


def _nats_here() -> dict[str, Any]:
    """The NATS of the `angarium dev` that runs in this directory, if there is one, as the usual one."""
    directory = Path(DEV_DIRECTORY)
    if not (directory / "dev.json").exists():
        return {}
    from angarium.development.directory import nats_of

    found = nats_of(directory)
    return {"nats": tuple(found.split(","))} if found else {}


@functools.cache
def _fields() -> dict[str, msgspec.structs.FieldInfo]:
    return {each.name: each for each in msgspec.structs.fields(Settings)}


def _option(name: str) -> Callable[[Command], Command]:
    field = _fields()[name]
    text = next(meta.description for meta in field.type.__metadata__ if meta.description)
    text = text[0].upper() + text[1:]
    flag, variable = settings.flag_name(name), settings.VARIABLE_PREFIX + name.upper()
    if field.type.__origin__ is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=f"{text} [{variable}].")
    many = settings.is_list(field.type)
    default = field.default
    if default not in (None, (), msgspec.NODEFAULT):
        shown = f"{variable}={','.join(default) if many else default}"
        variable = shown if len(shown) <= VARIABLE_MAX else shown.replace("=", ", by default ", 1)
    text += f" [{variable}]"
    return click.option(flag, name, multiple=many, metavar=_metavar(name, field.type), help=f"{text}.")


def _metavar(name: str, kind: Any) -> str:
    match msgspec.inspect.type_info(kind):
        case (
            msgspec.inspect.LiteralType(values=values)
            | msgspec.inspect.Metadata(type=msgspec.inspect.LiteralType(values=values))
        ):
            return "|".join(map(str, values))
        case _:
            return _METAVARS.get(name, "FILE" if name in FILE_SETTINGS else "VALUE")
