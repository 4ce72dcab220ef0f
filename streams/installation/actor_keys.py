"""The keys of the bucket of the actors: those of each shard, and those that belong to no shard."""

from msgspec import Struct


class ActorKeys(Struct, frozen=True):
    """The subjects of these keys. A key that belongs to a shard begins with its number."""

    prefix: str = "angarium"

    def actor(self, shard: int, receiver: str) -> str:
        return f"$KV.{self.prefix}_actors.{shard}.{receiver}"

    @property
    def snapshots(self) -> str:
        """All snapshots of actors, and other keys of shards with as many tokens."""
        return self.snapshots_of("*")

    def snapshots_of(self, tenant: str) -> str:
        """All snapshots of a tenant's actors; `*` means all of them."""
        return f"$KV.{self.prefix}_actors.*.{tenant}.*"

    def snapshots_in(self, shard: int) -> str:
        """All snapshots of a shard's actors, and other keys of the shard with as many tokens."""
        return self.actor(shard, "*.*")

    def shard_and_actor(self, key: str) -> tuple[int, str] | None:
        """The shard and the receiver from the key of a snapshot; None if it is another key."""
        match key.removeprefix(f"$KV.{self.prefix}_actors.").split("."):
            case [shard, tenant, name] if shard.isdecimal() and not tenant.startswith("_"):
                return int(shard), f"{tenant}.{name}"
        return None

    def owner(self, shard: int) -> str:
        return f"$KV.{self.prefix}_actors.{shard}._owner"

    def checkpoint(self, shard: int) -> str:
        return f"$KV.{self.prefix}_actors.{shard}._checkpoint"

    def proof(self, shard: int) -> str:
        """The key of the empty message that proves a leader's answer (`streams.journal.leadership`)."""
        return f"$KV.{self.prefix}_actors.{shard}._proof"

    def refusal(self, shard: int) -> str:
        return f"$KV.{self.prefix}_actors.{shard}._refused"

    def parked_receivers(self, shard: int, part: int) -> str:
        return f"$KV.{self.prefix}_actors.{shard}._parked.{part}"

    @property
    def redrive(self) -> str:
        """The key of the plan of a redrive; it belongs to no shard."""
        return f"$KV.{self.prefix}_actors._redrive"

    def redrive_job(self, tenant: str) -> str:
        """The key of the plan of a tenant's redrive in the background; `*` means all of them."""
        return f"$KV.{self.prefix}_actors._redrive.{tenant}"

    def replay(self, receiver: str) -> str:
        """The key of the plan of a replay for the receiver; it belongs to no shard and has no third token."""
        return f"$KV.{self.prefix}_actors._replay.{receiver.replace('.', '=')}"

    def receiver_of_replay(self, key: str) -> str | None:
        """The receiver from the key of the plan of its replay; None if it is another key."""
        prefix = self.replay("")
        return key.removeprefix(prefix).replace("=", ".") if key.startswith(prefix) else None

    def tenant_of_redrive_job(self, key: str) -> str:
        """The tenant from the key of the plan of its redrive in the background."""
        return key.removeprefix(self.redrive_job(""))

    @property
    def sealing(self) -> str:
        """The key, of no shard, that says that the installation seals secrets."""
        return f"$KV.{self.prefix}_actors._sealing"

    def erasure(self, tenant: str, event: str) -> str:
        """The key, of no shard, of the request to erase an event. KV keys have no colons."""
        return f"$KV.{self.prefix}_actors._erased.{tenant}/{event.replace(':', '=')}"

    @property
    def erasures(self) -> str:
        """All requests to erase an event."""
        return f"$KV.{self.prefix}_actors._erased.*"

    def redacted_flush(self, position: int) -> str:
        """The key, of no shard, of the copy of an erased message of the journal."""
        return f"$KV.{self.prefix}_actors._redacted.{position}"

    def position_of_redacted(self, key: str) -> int:
        """The position of the erased message from the key of its copy."""
        return int(key.rpartition(".")[2])

    @property
    def redacted_flushes(self) -> str:
        """All copies of erased messages of the journal."""
        return f"$KV.{self.prefix}_actors._redacted.*"
