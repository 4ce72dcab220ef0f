"""Makes the passwords of an installation.

- `nats.env`: the variables of nats-server, for `permissions.conf` and `three-servers.conf`.
- `node.toml`, `operator.toml`, `api.toml`, `ledger.toml`, `inspector.toml`: the settings with which each of
  them connects (`angarium node --config node.toml`); add others to them.
- `keys`: a key that seals receivers' secrets in NATS (docs/operating.md, Secrets at rest).
- `acme.url`: the addresses for the producers of the tenant.

A server is `nats-1`, the default with `nats-2` and `nats-3`, or `nats-1:4222`. Needs no more than Python.
"""

import argparse
import base64
import os
import secrets
import sys
from pathlib import Path

ROLES = ("node", "operator", "api", "ledger", "inspector")
PRODUCERS = ("acme",)
PORT, ROUTE_PORT = 4222, 6222
OWNER_ONLY, READABLE = 0o700, 0o644
"""Containers read the files as another user: the directory keeps everybody else out."""


def password() -> str:
    """It begins with a letter: nats-server reads a variable that is all digits as a number."""
    return "p" + secrets.token_hex(24)


def sealing_key() -> str:
    """A line of a key file, as `angarium key new` makes it."""
    return f"k1 {base64.b64encode(secrets.token_bytes(32)).decode()}\n"


def url(user: str, secret: str, server: str, port: int) -> str:
    host, _, given = server.partition(":")
    return f"nats://{user}:{secret}@{host}:{given or port}"


def make(servers: list[str]) -> dict[str, str]:
    """The text of each file, by its name."""
    route = password()
    routes = ",".join(url("route", route, server.partition(":")[0], ROUTE_PORT) for server in servers)
    variables = [f"ANGARIUM_ROUTE_PASSWORD={route}", f"NATS_ROUTES=[{routes}]"]
    files = dict[str, str]()
    for user in (*ROLES, *PRODUCERS):
        secret = password()
        variables.append(f"ANGARIUM_{user.upper()}_PASSWORD={secret}")
        addresses = [url(user, secret, server, PORT) for server in servers]
        if user in ROLES:
            quoted = ", ".join(f'"{address}"' for address in addresses)
            files[f"{user}.toml"] = f"nats = [{quoted}]\n"
        else:
            files[f"{user}.url"] = ",".join(addresses) + "\n"
    return files | {"nats.env": "\n".join(variables) + "\n", "keys": sealing_key()}


def main() -> None:
    parser = argparse.ArgumentParser(
        usage="python3 make_secrets.py DIRECTORY [SERVER …]", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("directory", metavar="DIRECTORY", type=Path)
    parser.add_argument("servers", metavar="SERVER", nargs="*", default=["nats-1", "nats-2", "nats-3"])
    given = parser.parse_args()
    directory, servers = given.directory, given.servers
    if (directory / "nats.env").exists():
        sys.exit(f"{directory / 'nats.env'} exists already: move it away to make new passwords")
    directory.mkdir(parents=True, exist_ok=True)
    os.chmod(directory, OWNER_ONLY)
    for name, text in make(servers).items():
        path = directory / name
        path.touch()
        path.chmod(READABLE)
        path.write_text(text)
        print(path)


if __name__ == "__main__":
    main()
