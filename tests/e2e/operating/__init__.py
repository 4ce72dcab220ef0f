"""Commands that change what is delivered: redrive, replay, expire and erase, and the ledger of it all."""
